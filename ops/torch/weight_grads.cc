#include "ops/torch/weight_grads.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>

#include "ops/torch/errors.h"

namespace sluice {
namespace {

uint32_t countChanges(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

}  // namespace

at::Tensor makeLeaf(const at::Tensor& weight) {
  return weight.defined() && weight.requires_grad() ? weight.detach().requires_grad_() : weight;
}

at::Tensor addedElsewhere(const at::Tensor& weight) {
  return at::zeros({}, weight.options()).expand_as(weight);
}

KeptTensor::KeptTensor(std::string_view of, const at::Tensor& kept)
    : name(of), tensor(kept), version(countChanges(kept)) {}

void KeptTensor::check() const {
  if (countChanges(tensor) != version)
    throwRuntime(
        fmt::format("{} was changed in place since the backward, but its weight gradients need it: expected "
                    "backward_dw() before that",
                    name));
}

void WeightGradQueue::add(DelayedGrads grads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  waiting_.push_back(std::move(grads));
}

void WeightGradQueue::checkFree(const LayerState& state, HeldSet held) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::any_of(waiting_.begin(), waiting_.end(), [&](const DelayedGrads& each) {
        return each.state == &state && each.held.taken == held.taken;
      }))
    throwRuntime("a second backward of this forward, expected backward_dw() for the first before");
}

int64_t WeightGradQueue::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(waiting_.size());
}

void WeightGradQueue::check() const {
  if (size() == 0)
    throwRuntime(
        "no backward waits for its weight gradients, expected one backward() before each backward_dw()");
}

WeightsAndGrads WeightGradQueue::compute(bool submit) {
  check();
  std::unique_lock<std::mutex> lock(mutex_);
  const DelayedGrads oldest = std::move(waiting_.front());
  waiting_.pop_front();
  lock.unlock();
  return oldest.compute(submit);
}

}  // namespace sluice
