// Layer: the class torch.classes.sluice.Layer, a task program that the op runs.
//
// Shared by autograd nodes and pending steps, which keep it alive. Any number of threads may use it; all
// ranks make the same calls in the same order. Errors are exceptions.
#pragma once

#include <torch/custom_class.h>

#include <memory>
#include <string>
#include <vector>

#include "ops/torch/layer_state.h"
#include "ops/torch/ranks.h"
#include "ops/torch/tensors.h"

namespace sluice {

class Layer : public torch::CustomClassHolder {
 public:
  // Collective. `path` is a task binary, `weights` the names of its weights in the order of the op.
  Layer(c10::intrusive_ptr<Ranks> ranks, const std::string& path, const std::vector<std::string>& weights);

  std::string describe() const { return describeProgram(state_->program(), state_->rank()); }
  int64_t savedSets() const { return state_->savedSets().made(); }
  int64_t savedInUse() const { return state_->savedSets().inUse(); }
  int64_t savedBytes() const { return state_->savedBytes(); }

  const LayerSignature& signature() const { return signature_; }
  LayerState& state() const { return *state_; }
  BlockPool& grads() const { return ranks_->grads(); }

 private:
  c10::intrusive_ptr<Ranks> ranks_;  // outlives the state
  LayerSignature signature_;
  LayerStatePtr state_;
};

// The checked tensors of a forward step, and its result.
struct ForwardStep {
  at::Tensor x, expertIds, expertWeights, y;
  std::vector<at::Tensor> weights;

  std::vector<NamedTensor> named(const LayerSignature& signature) const;
};
// Throws if the layer does not accept them.
ForwardStep prepareForward(const Layer& layer, const at::Tensor& x, const at::Tensor& ids,
                           const at::Tensor& expertWeights, at::TensorList weights);

}  // namespace sluice
