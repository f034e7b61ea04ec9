#include "tools/io/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cassert>
#include <cstring>
#include <new>

#include "runtime/base/huge_pages.h"

namespace sluice::tools {

std::optional<int64_t> tensorBytes(DType type, std::span<const int64_t> shape) {
  int64_t bytes = dtypeBytes(type);
  bool empty = false;
  for (int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    empty = empty || dim == 0;
    // a zero dimension makes the tensor empty, but the others must still be valid
    if (dim > 0 && __builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return empty ? 0 : bytes;
}

std::string describeTensor(DType type, std::span<const int64_t> shape) {
  return fmt::format("{} [{}]", dtypeName(type), fmt::join(shape, ", "));
}

Tensor Tensor::described(DType type, std::vector<int64_t> shape) {
  Tensor tensor;
  tensor.type_ = type;
  tensor.shape_ = std::move(shape);
  const std::optional<int64_t> bytes = tensorBytes(type, tensor.shape_);
  assert(bytes);
  tensor.bytes_ = *bytes;
  return tensor;
}

Tensor::Tensor(DType type, std::vector<int64_t> shape) : Tensor(described(type, std::move(shape))) {
  // never null, even if empty; whole cache lines
  const size_t whole = (static_cast<size_t>(bytes_) + 64) / 64 * 64;
  const bool isLarge = wantsHugePages(whole);
  void* data = nullptr;
  if (posix_memalign(&data, isLarge ? kHugePageBytes : 64, whole) != 0) throw std::bad_alloc();
  data_.reset(static_cast<std::byte*>(data));
  if (isLarge) adviseHugePages(data, whole);
  std::memset(data_.get(), 0, whole);
}

}  // namespace sluice::tools
