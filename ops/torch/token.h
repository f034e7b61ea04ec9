// Tokens: a tensor that stands for a set of saved tensors, and releases the set when it is freed.
//
// Autograd keeps a token among the tensors that are saved for backward, so the set lives exactly as long as
// they do: until a backward without retain_graph, the end of the graph, or the end of what checkpointing
// keeps instead.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include "ops/torch/layer_state.h"

namespace sluice {

// A step that filled a set.
struct HeldStep {
  HeldSet held;
  int64_t tokens = 0;
  int64_t rows = 0;  // if the step returns rows to the caller
};

// `owner` keeps `state` alive, and the token keeps `owner` alive.
at::Tensor makeToken(c10::intrusive_ptr<torch::CustomClassHolder> owner, LayerState& state, HeldStep step);

// Throws if the token belongs to another state, or if its set was released.
HeldStep findHeldStep(const at::Tensor& token, const LayerState& state);

}  // namespace sluice
