// Pending: the class torch.classes.sluice.Pending, a step that was submitted.
//
// Keeps the step's tensors alive; its destructor waits for the step. Any thread may use it. Errors are
// exceptions.
#pragma once

#include <torch/custom_class.h>

#include "ops/torch/layer.h"

namespace sluice {

class Pending : public torch::CustomClassHolder {
 public:
  // `owner` keeps `state` alive. `tensors` are what the step uses, from its result on.
  Pending(c10::intrusive_ptr<torch::CustomClassHolder> owner, LayerState& state,
          std::vector<at::Tensor> tensors, PendingStep pending)
      : owner_(std::move(owner)), state_(state), tensors_(std::move(tensors)), pending_(std::move(pending)) {}

  // Waits for the step and returns its result. May be called again.
  at::Tensor wait();
  bool done() const;
  void cancel();

 private:
  c10::intrusive_ptr<torch::CustomClassHolder> owner_;
  LayerState& state_;
  std::vector<at::Tensor> tensors_;
  PendingStep pending_;  // destroyed first: it waits until nothing uses the other members
};

}  // namespace sluice
