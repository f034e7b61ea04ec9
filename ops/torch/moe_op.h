// The op sluice::moe: a layer forward, with autograd where a gradient is required.
#pragma once

#include <ATen/core/List.h>

#include "ops/torch/layer.h"

namespace sluice {

using MainGrads = c10::List<OptionalTensor>;

// y [T,H] of x [T,H], expert_ids [T,K] and expert_weights [T,K]; `weights` in the order of the layer's names.
// Weights may be float32 where the program has bf16: each step rounds them, and their gradients are float32.
// With `mainGrads[i]` the gradient of weight i is added to that tensor, and autograd gets none for it; the
// list is empty or has one entry per weight. Collective over the layer's ranks, and so is its backward.
at::Tensor moe(const c10::intrusive_ptr<Layer>& layer, const at::Tensor& x, const at::Tensor& expertIds,
               const at::Tensor& expertWeights, at::TensorList weights, const MainGrads& mainGrads);

}  // namespace sluice
