// The op sluice::submit_training: a forward, a backward and, if the program has it, a step for delayed weight
// gradients whose results nobody needs, submitted so that a layer has its memory and packed weights before
// the first step.
#pragma once

#include <vector>

#include "ops/torch/pending.h"

namespace sluice {

// Submits a forward with these tensors, as sluice::moe takes them, and its backward with a gradient of zeros
// of y. Gradients are computed and dropped, and autograd sees nothing of it. Throws if the tensors do not fit
// or the layer's program has no backward; then no step is submitted, and the step is refused at all ranks.
std::vector<c10::intrusive_ptr<Pending>> submitTraining(const c10::intrusive_ptr<Layer>& layer,
                                                        const at::Tensor& x, const at::Tensor& expertIds,
                                                        const at::Tensor& expertWeights,
                                                        at::TensorList weights,
                                                        const OptionalTensor& placement);

}  // namespace sluice
