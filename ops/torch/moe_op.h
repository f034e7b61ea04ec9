// The ops sluice::moe and sluice::submit_moe: a layer forward, with autograd where a gradient is required.
#pragma once

#include <ATen/core/List.h>

#include <vector>

#include "ops/torch/layer.h"
#include "ops/torch/pending.h"
#include "ops/torch/weight_grads.h"

namespace sluice {

using MainGrads = c10::List<OptionalTensor>;

// Returns y [T,H] for x [T,H], expert_ids [T,K] and expert_weights [T,K]; `weights` are in the order of the
// layer's names. A weight may be float32 if the program has bf16: each step rounds it, and its gradient is
// float32. With `mainGrads[i]` the gradient of weight i is added to that tensor, and autograd gets none; the
// list is empty or has one entry per weight. `placement` [places] (I32) is the expert at each place, if the
// program takes one: then `weights` are the weights of the places. `amaxesUsed` and `amaxes` are tensors for
// Layer::amaxes(), in order, if the program has any: what a step scales by, and where it and its backward
// write what they find. If the program delays weight gradients, autograd gets none of weights: a backward
// puts what is left to do into `delayed`. Collective over the layer's ranks, and so is its backward.
at::Tensor moe(const c10::intrusive_ptr<Layer>& layer, const at::Tensor& x, const at::Tensor& expertIds,
               const at::Tensor& expertWeights, at::TensorList weights, const MainGrads& mainGrads,
               const OptionalTensor& placement, const TensorsOrNone& amaxesUsed, const TensorsOrNone& amaxes,
               const OptionalQueue& delayed);

// The same, but it returns at once: y has its numbers when the step has ended.
std::tuple<at::Tensor, c10::intrusive_ptr<Pending>> submitMoe(
    const c10::intrusive_ptr<Layer>& layer, const at::Tensor& x, const at::Tensor& expertIds,
    const at::Tensor& expertWeights, at::TensorList weights, const MainGrads& mainGrads,
    const OptionalTensor& placement, const TensorsOrNone& amaxesUsed, const TensorsOrNone& amaxes,
    const OptionalQueue& delayed);

// The op sluice::submit_training: a forward, a backward and, if the program has it, a step for delayed weight
// gradients whose results nobody needs, so that a layer has its memory and packed weights before the first
// step. It submits a forward with these tensors, as sluice::moe takes them, and its backward with a gradient
// of zeros of y. Gradients are computed and dropped, and autograd sees nothing of it. Throws if the tensors
// do not fit or the layer's program has no backward; then no step is submitted, and the step is refused at
// all ranks.
std::vector<c10::intrusive_ptr<Pending>> submitTraining(const c10::intrusive_ptr<Layer>& layer,
                                                        const at::Tensor& x, const at::Tensor& expertIds,
                                                        const at::Tensor& expertWeights,
                                                        at::TensorList weights,
                                                        const OptionalTensor& placement);

}  // namespace sluice
