// WeightGradQueue: the class torch.classes.sluice.WeightGradQueue, the backwards of a module whose weight
// gradients no step has computed yet, the oldest first.
//
// Any number of threads may use it. What it holds keeps saved sets, and is freed with it. Errors are
// exceptions.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "ops/torch/layer_state.h"
#include "ops/torch/pending.h"
#include "ops/torch/tensors.h"

namespace sluice {

// What autograd sees of a weight whose gradient is delayed, if it requires one: nothing waits for that.
at::Tensor makeLeaf(const at::Tensor& weight);
// What stands for the gradient of a weight that a step has added to a main_grad: autograd begins with no
// undefined one.
at::Tensor addedElsewhere(const at::Tensor& weight);

// Weights as the op was given them, their gradients (addedElsewhere() where the step adds to a main_grad),
// and the step if it was submitted: then the gradients have their numbers when it has ended.
using WeightsAndGrads =
    std::tuple<std::vector<at::Tensor>, std::vector<at::Tensor>, c10::optional<c10::intrusive_ptr<Pending>>>;

// A tensor that a step reads later, and how often it had been changed in place before.
struct KeptTensor {
  KeptTensor(std::string_view name, const at::Tensor& tensor);
  // Throws if it was changed since.
  void check() const;

  std::string name;
  at::Tensor tensor;
  uint32_t version;
};

struct DelayedGrads {
  const LayerState* state = nullptr;
  HeldSet held;  // by a token that `compute` owns
  std::function<WeightsAndGrads(bool submit)> compute;
};

class WeightGradQueue : public torch::CustomClassHolder {
 public:
  void add(DelayedGrads grads);
  // Throws if the weight gradients of a backward that read the same saved set are not computed yet: another
  // backward would replace what it has saved for them.
  void checkFree(const LayerState& state, HeldSet held) const;
  int64_t size() const;
  // Throws if there is none.
  void check() const;
  // Takes the oldest backward out and computes its weight gradients, by a step of its layer, which is
  // submitted if `submit`. Throws if there is none.
  WeightsAndGrads compute(bool submit);

 private:
  mutable std::mutex mutex_;
  std::deque<DelayedGrads> waiting_;
};

using OptionalQueue = c10::optional<c10::intrusive_ptr<WeightGradQueue>>;

}  // namespace sluice
