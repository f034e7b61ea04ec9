// The op torch.ops.sluice.linear and the class torch.classes.sluice.Linear: a column- or row-parallel linear
// layer as a task program.
//
// The program has an entry `forward` (x, weight, optional bias; y) and possibly `backward` (dy, weight, what
// it reads of x; dx, weight_grad, bias_grad), as graphs/linear has them, and amaxes of factors that it
// scales. An entry `weight_grads` after `backward` gives weight_grad and bias_grad if the program has it. Of
// x and y one is of tokens and the other of rows; results of rows are written directly into new tensors.
#pragma once

#include <torch/custom_class.h>

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "ops/torch/amax_tensors.h"
#include "ops/torch/layer_state.h"
#include "ops/torch/ranks.h"
#include "ops/torch/tensors.h"
#include "ops/torch/weight_grads.h"

namespace sluice {

// Shared by autograd nodes, which keep it alive. Any number of threads may use it; all ranks must make the
// same calls in the same order. Errors are exceptions.
class LinearLayer : public torch::CustomClassHolder {
 public:
  // Collective. `path` names a task program.
  LinearLayer(c10::intrusive_ptr<Ranks> ranks, const std::string& path, const std::string& arguments);

  int64_t savedSets() const { return state_->savedSets().made(); }
  int64_t savedInUse() const { return state_->savedSets().inUse(); }
  int64_t savedBytes() const { return state_->savedBytes(); }

  LayerState& state() const { return *state_; }
  LayerState& besideState() const { return *beside_; }  // as Layer::besideState()
  BlockPool& grads() const { return ranks_->grads(); }

  // The program's tensor of this name; null if it has none.
  const Buffer* find(std::string_view name) const;
  const Buffer& at(std::string_view name) const { return *find(name); }
  bool isOfRows(std::string_view name) const { return at(name).shape[0].extent == Extent::kRows; }
  int64_t columns(std::string_view name) const { return at(name).shape.back().size; }
  bool backwardReadsX() const { return backwardReadsX_; }
  bool accumulates() const { return accumulates_; }
  bool delaysWeightGrads() const { return delaysWeightGrads_; }
  bool isReadByWeightGrads(std::string_view name) const { return readByWeightGrads_.contains(name); }
  const std::vector<AmaxSignature>& amaxes() const { return amaxes_; }
  std::vector<AmaxDescription> describeAmaxes() const { return sluice::describeAmaxes(amaxes_); }

 private:
  Program load(const std::string& path);

  c10::intrusive_ptr<Ranks> ranks_;  // must outlive the state
  LayerStatePtr state_, beside_;
  std::map<std::string, BufferId, std::less<>> tensors_;  // inputs and outputs
  std::vector<AmaxSignature> amaxes_;
  bool backwardReadsX_ = false;
  bool accumulates_ = false;
  bool delaysWeightGrads_ = false;                        // by an entry `weight_grads`
  std::set<std::string, std::less<>> readByWeightGrads_;  // the caller's tensors that that entry reads
};

// Returns y [R or T, N] for x [T or R, C], weight [N, C] and a bias [N] if the program has one. `tokens`: T
// of this rank; `width`: tokens per index of the caller's first dimension, the same at all ranks. Weights may
// be float32: they are rounded. If main_grad [N, C] is given, the weight's gradient is added to it, and
// autograd gets none. `weightAmax` [1,1] is the largest magnitude of the weight, if the program reads it;
// `amaxesUsed`, `amaxes` and `delayed` are as for sluice::moe. ValueError and RuntimeError fail the step at
// all ranks.
at::Tensor linear(const c10::intrusive_ptr<LinearLayer>& layer, const at::Tensor& x, const at::Tensor& weight,
                  const OptionalTensor& bias, const OptionalTensor& mainGrad, int64_t tokens, int64_t width,
                  const OptionalTensor& weightAmax, const TensorsOrNone& amaxesUsed,
                  const TensorsOrNone& amaxes, const OptionalQueue& delayed);

}  // namespace sluice
