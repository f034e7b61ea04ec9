// What the op requires of tensors, and views of them for the runtime: nothing is copied.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <string_view>
#include <vector>

#include "ops/torch/block_pool.h"
#include "runtime/api/context.h"
#include "runtime/base/dtype.h"

namespace sluice {

// torch 2.x has std::optional by this name; 1.13 has its own class.
using OptionalTensor = c10::optional<at::Tensor>;

// Stands for any size in a shape.
inline constexpr int64_t kAnySize = -1;

at::ScalarType torchType(DType type);

// Throws unless `tensor` is given, dense, on that device, contiguous, and of that type and shape (kAnySize:
// any). The message has the name, what was found and what was expected.
void checkTensor(std::string_view name, const at::Tensor& tensor, at::ScalarType type,
                 const std::vector<int64_t>& shape, const at::Device& device = at::kCPU);

// The view of a tensor that passed checkTensor(); of a weight as `type`, which PyTorch may have no type for.
TensorView viewTensor(const at::Tensor& tensor);
TensorView viewTensor(const at::Tensor& tensor, DType type);

// Makes an uninitialized tensor. The second function takes large ones on the CPU from the pool.
at::Tensor makeTensor(DType type, const std::vector<int64_t>& shape, const at::Device& device = at::kCPU);
at::Tensor makeTensor(DType type, const std::vector<int64_t>& shape, BlockPool& pool,
                      const at::Device& device = at::kCPU);

// Around a call that makes a layer, or runs or submits a step, on this device. When it is made, it waits
// until all that this thread has enqueued in its current stream there is done: steps run in a stream of their
// own, and have ended when they return. When it ends, the thread's current device is the one before. Does
// nothing for the CPU.
class StepGuard {
 public:
  explicit StepGuard(const at::Device& device);

 private:
  c10::OptionalDeviceGuard current_;
};

// Returns ids as the runtime reads them: [tokens, topK] I32, converted from 64 bits if needed. Throws for
// other types and shapes, and on the CPU for 64-bit ids that are neither -1 nor an expert; on a GPU the step
// refuses them. `name` is the caller's.
at::Tensor expertIds(const at::Tensor& ids, int64_t tokens, int64_t topK, int64_t experts,
                     const at::Device& device = at::kCPU, std::string_view name = "expert_ids");

}  // namespace sluice
