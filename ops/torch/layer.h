// Layer: the class torch.classes.sluice.Layer, a task program that the op runs.
//
// Shared by autograd nodes and pending steps, which keep it alive. Any number of threads may use it; all
// ranks must make the same calls in the same order. Errors are exceptions.
#pragma once

#include <torch/custom_class.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/torch/amax_tensors.h"
#include "ops/torch/layer_state.h"
#include "ops/torch/ranks.h"
#include "ops/torch/tensors.h"

namespace sluice {

class Layer : public torch::CustomClassHolder {
 public:
  // Collective. `path` names a task program, `weights` its weights in the order of the op's arguments.
  // `arguments` are as for Workspace::agree().
  Layer(c10::intrusive_ptr<Ranks> ranks, const std::string& path, const std::vector<std::string>& weights,
        const std::string& arguments);

  std::string describe() const { return describeProgram(state_->program(), state_->rank()); }
  std::vector<AmaxDescription> amaxes() const { return describeAmaxes(signature_.amaxes); }
  int64_t savedSets() const { return state_->savedSets().made(); }
  int64_t savedInUse() const { return state_->savedSets().inUse(); }
  int64_t savedBytes() const { return state_->savedBytes(); }
  int64_t packedBytes() const {
    return state_->packedBytes() + (beside_ && beside_ != state_ ? beside_->packedBytes() : 0);
  }

  // Keeps weights without gradient packed for the kernels between steps, until autograd's count of changes
  // shows that they changed. Costs as much memory again as the weights.
  void packFrozen(bool whether) { packsFrozen_ = whether; }

  // NamedTensor::content of weight number `w`: 0 if it is not the tensor of the last keepContentVersion(), or
  // may have changed unseen. keepContentVersion() keeps a new one.
  uint64_t contentVersion(size_t w, const at::Tensor& weight) const;
  uint64_t keepContentVersion(size_t w, const at::Tensor& weight);

  const LayerSignature& signature() const { return signature_; }
  LayerState& state() const { return *state_; }
  // For steps of delayed weight gradients.
  LayerState& besideState() const { return *beside_; }
  BlockPool& grads() const { return ranks_->grads(); }
  const at::Device& device() const { return ranks_->device(); }  // of all tensors of a step

 private:
  c10::intrusive_ptr<Ranks> ranks_;  // must outlive the state
  LayerSignature signature_;
  LayerStatePtr state_, beside_;

  // A weight of an earlier step. While its object exists, no other tensor has its memory.
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
  at::Tensor x, expertIds, placement, expertWeights, y;  // placement: undefined if the layer takes none
  std::vector<at::Tensor> weights;
  std::vector<uint64_t> contents;  // of the weights
  AmaxTensors amaxes;

  std::vector<NamedTensor> named(const LayerSignature& signature) const;
};
// Throws if the layer does not accept the tensors.
ForwardStep prepareForward(Layer& layer, const at::Tensor& x, const at::Tensor& ids,
                           const at::Tensor& expertWeights, at::TensorList weights,
                           const OptionalTensor& placement, const TensorsOrNone& amaxesUsed,
                           const TensorsOrNone& amaxes);

}  // namespace sluice
