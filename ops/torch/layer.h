// Layer: the class torch.classes.sluice.Layer, a task program that the op runs.
//
// Shared by autograd nodes and pending steps, which keep it alive. Any number of threads may use it; all
// ranks make the same calls in the same order. Errors are exceptions.
#pragma once

#include <torch/custom_class.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
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
  int64_t packedBytes() const { return state_->packedBytes(); }

  // Weights without gradient stay packed for the kernels from one step to the next, as long as autograd's
  // count of changes says that they are what they were. Costs as much memory again as they have.
  void packFrozen(bool whether) { packsFrozen_ = whether; }

  // NamedTensor::content of the weight number `w`: 0 where it is not the one that was kept last, or may
  // change unseen. keepContentOf() keeps a new one.
  uint64_t contentOf(size_t w, const at::Tensor& weight) const;
  uint64_t keepContentOf(size_t w, const at::Tensor& weight);

  const LayerSignature& signature() const { return signature_; }
  LayerState& state() const { return *state_; }
  BlockPool& grads() const { return ranks_->grads(); }

 private:
  c10::intrusive_ptr<Ranks> ranks_;  // outlives the state
  LayerSignature signature_;
  LayerStatePtr state_;

  // A weight that a step has had. While its object is there, nothing else has its memory.
  struct SeenWeight {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    const void* data;
    uint32_t version;
    uint64_t content;
  };
  std::atomic<bool> packsFrozen_{false};
  mutable std::mutex seenMutex_;
  std::map<size_t, SeenWeight> seen_;  // by number
  uint64_t contents_ = 0;
};

// The checked tensors of a forward step, and its result.
struct ForwardStep {
  at::Tensor x, expertIds, expertWeights, y;
  std::vector<at::Tensor> weights;
  std::vector<uint64_t> contents;  // of the weights

  std::vector<NamedTensor> named(const LayerSignature& signature) const;
};
// Throws if the layer does not accept them.
ForwardStep prepareForward(Layer& layer, const at::Tensor& x, const at::Tensor& ids,
                           const at::Tensor& expertWeights, at::TensorList weights);

}  // namespace sluice
