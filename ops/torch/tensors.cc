#include "ops/torch/tensors.h"

#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ops/torch/errors.h"
#include "runtime/base/huge_pages.h"

namespace sluice {
namespace {

std::string listText(at::IntArrayRef sizes) { return fmt::format("[{}]", fmt::join(sizes, ", ")); }

std::string shapeText(const std::vector<int64_t>& shape) {
  std::vector<std::string> dims;
  for (const int64_t size : shape) dims.push_back(size == kAnySize ? "any" : std::to_string(size));
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

bool fits(at::IntArrayRef sizes, const std::vector<int64_t>& shape) {
  if (sizes.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != kAnySize && sizes[d] != shape[d]) return false;
  return true;
}

// Expects a type that torchType() returns; others throw.
DType readDType(const at::Tensor& tensor) {
  uint8_t type = 0;
  while (torchType(static_cast<DType>(type)) != tensor.scalar_type()) ++type;
  return static_cast<DType>(type);
}

// Whether this is a tensor of a subclass that Python dispatches (DTensor, FakeTensor, tensors of
// torch.compile) or of torch.func: such a tensor does not have its content in its own memory.
bool standsForOthers(const at::Tensor& tensor) {
  const c10::DispatchKeySet keys = tensor.key_set();
  return keys.has(c10::DispatchKey::Python) || keys.has(c10::DispatchKey::Functionalize) ||
         keys.has(c10::DispatchKey::FuncTorchBatched) || keys.has(c10::DispatchKey::FuncTorchGradWrapper);
}

}  // namespace

at::ScalarType torchType(DType type) {
  switch (type) {
    case DType::kF32:
      return at::kFloat;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF16:
      return at::kHalf;
    case DType::kI32:
      return at::kInt;
    case DType::kI64:
      return at::kLong;
    case DType::kI8:
      return at::kChar;
    case DType::kU8:
    case DType::kF8_E4M3:
    case DType::kF8_E8M0:
      return at::kByte;
  }
  throwRuntime("a type that PyTorch does not have");
}

void checkTensor(std::string_view name, const at::Tensor& tensor, at::ScalarType type,
                 const std::vector<int64_t>& shape, const at::Device& device) {
  if (!tensor.defined()) throwValue(fmt::format("{} is not given", name));
  if (standsForOthers(tensor))
    throwValue(fmt::format(
        "{} is a DTensor or another tensor without its own memory, expected a plain tensor", name));
  if (tensor.device() != device)
    throwValue(fmt::format("{} is on device {}, expected {}", name, tensor.device().str(), device.str()));
  if (tensor.layout() != at::kStrided)
    throwValue(fmt::format("{} is not a dense tensor: call to_dense()", name));
  if (tensor.scalar_type() != type)
    throwValue(fmt::format("{} has type {}, expected {}", name, c10::toString(tensor.scalar_type()),
                           c10::toString(type)));
  if (!fits(tensor.sizes(), shape))
    throwValue(fmt::format("{} has shape {}, expected {}", name, listText(tensor.sizes()), shapeText(shape)));
  if (!tensor.is_contiguous())
    throwValue(fmt::format("{} is not contiguous (shape {}, strides {}): call .contiguous()", name,
                           listText(tensor.sizes()), listText(tensor.strides())));
  if (tensor.is_neg())
    throwValue(fmt::format("{} is a view that negates what its memory holds: call .resolve_neg()", name));
}

TensorView viewTensor(const at::Tensor& tensor) { return viewTensor(tensor, readDType(tensor)); }

TensorView viewTensor(const at::Tensor& tensor, DType type) {
  return {type, tensor.sizes().vec(), tensor.data_ptr()};
}

at::Tensor makeTensor(DType type, const std::vector<int64_t>& shape, const at::Device& device) {
  at::Tensor made = at::empty(shape, at::TensorOptions(torchType(type)).device(device));
  if (device.is_cpu() && wantsHugePages(made.nbytes())) adviseHugePages(made.data_ptr(), made.nbytes());
  return made;
}

at::Tensor makeTensor(DType type, const std::vector<int64_t>& shape, BlockPool& pool,
                      const at::Device& device) {
  if (!device.is_cpu()) return makeTensor(type, shape, device);  // PyTorch keeps memory of GPUs itself
  size_t bytes = static_cast<size_t>(dtypeBytes(type));
  for (const int64_t size : shape) bytes *= static_cast<size_t>(size);
  if (!wantsHugePages(bytes)) return makeTensor(type, shape);
  auto block = pool.take(bytes);
  if (!block) throwRuntime(block.error().message);
  void* const data = block->get();
  return at::from_blob(
      data, shape, [kept = std::move(*block)](void*) mutable { kept.reset(); },
      at::TensorOptions(torchType(type)));
}

StepGuard::StepGuard(const at::Device& device) {
  if (device.is_cpu()) return;
  current_.reset_device(device);
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

at::Tensor expertIds(const at::Tensor& ids, int64_t tokens, int64_t topK, int64_t experts,
                     const at::Device& device, std::string_view name) {
  const bool wide = ids.defined() && ids.scalar_type() == at::kLong;
  checkTensor(name, ids, wide ? at::kLong : at::kInt, {tokens, topK}, device);
  if (!wide) return ids;
  // others stay others in 32 bits
  if (!device.is_cpu()) return ids.clamp(-2, experts).to(at::kInt);
  at::Tensor narrow = makeTensor(DType::kI32, {tokens, topK});
  const int64_t* from = ids.data_ptr<int64_t>();
  int32_t* to = narrow.data_ptr<int32_t>();
  for (int64_t i = 0; i < tokens * topK; ++i) {
    if (from[i] < -1 || from[i] >= experts)
      throwValue(fmt::format("{}[{}, {}] is {}, expected 0 to {}, or -1 for none", name, i / topK, i % topK,
                             from[i], experts - 1));
    to[i] = static_cast<int32_t>(from[i]);
  }
  return narrow;
}

}  // namespace sluice
