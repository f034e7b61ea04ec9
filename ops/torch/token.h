// Tokens: a set of saved tensors as a tensor, which gives the set back when it dies.
//
// Autograd keeps a token among the tensors that are saved for backward, so that the set lives exactly as long
// as these: until a backward without retain_graph, the end of the graph, or of what checkpointing keeps
// instead.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include "ops/torch/layer_state.h"

namespace sluice {

// A step that filled a set.
struct HeldStep {
  HeldSet held;
  int64_t tokens = 0;
  int64_t rows = 0;  // where the step gives rows to the caller
};

// `owner` keeps `state` alive, and the token keeps `owner`.
at::Tensor makeToken(c10::intrusive_ptr<torch::CustomClassHolder> owner, LayerState& state, HeldStep step);

// Throws where the token is of another state, or its set was given back.
HeldStep stepOf(const at::Tensor& token, const LayerState& state);

}  // namespace sluice
