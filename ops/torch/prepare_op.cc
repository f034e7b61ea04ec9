#include <ATen/core/grad_mode.h>

#include "ops/torch/errors.h"
#include "ops/torch/moe_op.h"

namespace sluice {
namespace {

// The tensors of a backward step, and of one for delayed weight gradients, by name. The names belong to a
// signature, are literals, or are in `gradNames`.
struct BackwardTensors {
  std::vector<std::unique_ptr<std::string>> gradNames;
  std::vector<NamedTensor> named;
  std::vector<at::Tensor> tensors;  // that the step uses

  void add(std::string_view name, at::Tensor tensor) {
    named.push_back({name, viewTensor(tensor)});
    tensors.push_back(std::move(tensor));
  }
};

// With zeros as the gradient of y.
BackwardTensors prepareBackwardTensors(Layer& layer, const ForwardStep& step) {
  const LayerSignature& signature = layer.signature();
  const int64_t tokens = step.x.size(0);
  BackwardTensors made;
  made.add("dy", makeTensor(DType::kBF16, {tokens, signature.outHidden}, layer.device()).zero_());
  if (signature.backwardReadsX) made.add("x", step.x);
  if (signature.backwardReadsExpertWeights) made.add("expert_weights", step.expertWeights);
  if (signature.hasDx) made.add("dx", makeTensor(DType::kBF16, {tokens, signature.hidden}, layer.device()));
  if (signature.hasExpertWeightsGrad)
    made.add("d_expert_weights", makeTensor(DType::kF32, {tokens, signature.topK}, layer.device()));
  for (size_t w = 0; w < signature.weights.size(); ++w) {
    const WeightSignature& weight = signature.weights[w];
    if (weight.readByBackward) {
      made.named.push_back({weight.name, viewTensor(step.weights[w], weight.type), step.contents[w]});
      made.tensors.push_back(step.weights[w]);
    }
    if (!weight.hasGrad) continue;
    at::Tensor grad = makeTensor(weight.gradType, weight.shape, layer.grads(), layer.device());
    if (weight.accumulates) grad.zero_();
    made.gradNames.push_back(std::make_unique<std::string>(weight.name + "_grad"));
    made.add(*made.gradNames.back(), std::move(grad));
  }
  return made;
}

}  // namespace

std::vector<c10::intrusive_ptr<Pending>> submitTraining(const c10::intrusive_ptr<Layer>& layer,
                                                        const at::Tensor& x, const at::Tensor& ids,
                                                        const at::Tensor& expertWeights,
                                                        at::TensorList weights,
                                                        const OptionalTensor& placement) {
  const at::NoGradGuard isNoStepOfAutograd;
  LayerState& state = layer->state();
  throwIfFailed(state.checkProcess());
  HeldSet held;
  ForwardStep step;
  BackwardTensors backward = refusing(state, [&] {
    if (!layer->signature().hasBackward) throwRuntime("the layer's program has no entry 'backward'");
    step = prepareForward(*layer, x, ids, expertWeights, weights, placement, {}, {});
    BackwardTensors made = prepareBackwardTensors(*layer, step);
    held = valueOrThrow(state.savedSets().take());
    return made;
  });
  const StepGuard guard(layer->device());
  std::vector<at::Tensor> used = {step.y, step.x, step.expertIds, step.placement, step.expertWeights};
  used.insert(used.end(), step.weights.begin(), step.weights.end());
  used.insert(used.end(), backward.tensors.begin(), backward.tensors.end());
  std::vector<c10::intrusive_ptr<Pending>> steps;
  const auto submit = [&](std::string_view entry, const std::vector<NamedTensor>& named) {
    auto pending = state.submit(entry, named, held.set);
    if (!pending) state.savedSets().release(held);
    steps.push_back(c10::make_intrusive<Pending>(layer, state, used, valueOrThrow(std::move(pending))));
  };
  submit("forward", step.named(layer->signature()));
  submit("backward", backward.named);
  if (layer->signature().delaysWeightGrads) submit("weight_grads", backward.named);
  // steps run in order: whatever fills the set next does so after these
  state.savedSets().release(held);
  return steps;
}

}  // namespace sluice
