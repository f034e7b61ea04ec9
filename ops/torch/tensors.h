// What the op demands of tensors, and how the runtime sees them: nothing is copied.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "ops/torch/block_pool.h"
#include "runtime/api/context.h"
#include "runtime/base/dtype.h"

namespace sluice {

// torch 2.x has std::optional by this name; 1.13 has a class of its own.
using OptionalTensor = c10::optional<at::Tensor>;

// A size that is free.
inline constexpr int64_t kAnySize = -1;

at::ScalarType torchType(DType type);

// Throws unless `tensor` is there, dense, on the CPU, of that type and shape (kAnySize: any) and contiguous.
// The message has the name and what was found and expected.
void checkTensor(std::string_view name, const at::Tensor& tensor, at::ScalarType type,
                 const std::vector<int64_t>& shape);

// A tensor that was checked.
TensorView viewOf(const at::Tensor& tensor);

// Uninitialized, on the CPU. The second: of the pool where it is large.
at::Tensor makeTensor(DType type, const std::vector<int64_t>& shape);
at::Tensor makeTensor(DType type, const std::vector<int64_t>& shape, BlockPool& pool);

// Ids as the runtime wants them: [tokens, topK] I32. Those of 64 bits are converted. Throws for other types
// and shapes, and for ids of 64 bits that are not -1 and not of an expert.
at::Tensor expertIds(const at::Tensor& ids, int64_t tokens, int64_t topK, int64_t experts);

}  // namespace sluice
