#include "ops/torch/pending.h"

#include "ops/torch/errors.h"

namespace sluice {

at::Tensor Pending::wait() {
  throwIfFailed(state_.checkProcess());
  throwIfFailed(pending_.wait());
  return tensors_.front();
}

bool Pending::done() const {
  throwIfFailed(state_.checkProcess());
  return pending_.isDone();
}

void Pending::cancel() {
  throwIfFailed(state_.checkProcess());
  pending_.cancel();
}

c10::intrusive_ptr<Pending> submitMoe(const c10::intrusive_ptr<Layer>& layer, const at::Tensor& x,
                                      const at::Tensor& ids, const at::Tensor& expertWeights,
                                      at::TensorList weights, const OptionalTensor& placement,
                                      const TensorsOrNone& amaxesUsed, const TensorsOrNone& amaxes) {
  LayerState& state = layer->state();
  throwIfFailed(state.checkProcess());
  HeldSet held;
  ForwardStep step = refusing(state, [&] {
    ForwardStep prepared =
        prepareForward(*layer, x, ids, expertWeights, weights, placement, amaxesUsed, amaxes);
    held = valueOf(state.savedSets().take());
    return prepared;
  });
  const StepGuard guard(layer->device());
  auto pending = state.submit("forward", step.named(layer->signature()), held.set);
  // no step reads what this one saves, and steps run in order: the next user of the set fills it after this
  // step
  state.savedSets().release(held);
  std::vector<at::Tensor> tensors = {step.y, step.x, step.expertIds, step.placement, step.expertWeights};
  tensors.insert(tensors.end(), step.weights.begin(), step.weights.end());
  tensors.insert(tensors.end(), step.amaxes.all().begin(), step.amaxes.all().end());
  return c10::make_intrusive<Pending>(layer, state, std::move(tensors), valueOf(std::move(pending)));
}

}  // namespace sluice
