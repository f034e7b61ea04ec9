// RUN: sluice-opt %s --differentiate --split-input-file -verify-diagnostics

// Weights require an activation on the way: its gradient op computes their gradient.
moe.graph @no_activation ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-error @+1 {{node 'dispatch' gives rows that are weighted without an activation between, so there is no op for the gradient of the weights 'expert_weights'}}
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%up, %r) weights(%weights)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// One weight in two products: no op adds gradients of weights.
moe.graph @shared_weight ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error @+1 {{node 'up' and node 'up2' both contribute to the gradient of 'w', but there is no op that adds tensors [2 x 32 x 32 x bf16]}}
    %up = moe.gmm "up"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // expected-note @+1 {{node 'up2' is here}}
    %up2 = moe.gmm "up2"(%up, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%up2, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// Rows that are weighted on only one of two paths: no op weights them before the sum.
moe.graph @weighted_once ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 32 x bf16>
    %v = moe.input "v" : !moe.tensor<2 x 32 x 64 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %gate_up = moe.gmm "up_proj"(%rows, %v) {tensors = ["gate_up"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 64 x bf16>) -> !moe.tensor<R x 64 x bf16>
    %act = moe.activation "act" swiglu(%gate_up) : (!moe.tensor<R x 64 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // expected-error @+1 {{node 'down' and node 'combine2' both contribute to the gradient of 'act', weighted by nothing and by 'expert_weights', expected the same of both}}
    %down = moe.gmm "down"(%act, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%down, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    // expected-note @+1 {{node 'combine2' is here}}
    %z = moe.combine "combine2"(%act, %r) weights(%weights)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    moe.output "z", %z : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// Two activations whose rows get the same weights: each gives a part of the gradient of the weights.
moe.graph @two_dots ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %v = moe.input "v" : !moe.tensor<2 x 32 x 64 x bf16>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 64 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %gate_up = moe.gmm "up"(%rows, %v)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 64 x bf16>) -> !moe.tensor<R x 64 x bf16>
    %gate_up2 = moe.gmm "up2"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 64 x bf16>) -> !moe.tensor<R x 64 x bf16>
    // expected-error @+1 {{node 'act' and node 'act2' both contribute to the gradients of routing weights, expected one}}
    %act = moe.activation "act" swiglu(%gate_up) : (!moe.tensor<R x 64 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %act2 = moe.activation "act2" swiglu(%gate_up2) : (!moe.tensor<R x 64 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %sum = moe.add "sum"(%act, %act2) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%sum, %r) weights(%weights)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// The name of the derived entry must be free.
moe.graph @name ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  // expected-error @+1 {{entry 'backward' has the name of the derived entry}}
  moe.entry @backward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%up, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// Only one forward can be differentiated.
// expected-error @+1 {{graph 'two_entries' has 2 entries, expected one: its backward is derived}}
moe.graph @two_entries ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%up, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
  moe.entry @again {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%up, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "z", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// Gradients of gradients have no ops.
moe.graph @second_order ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // expected-error @+1 {{node 'grad' (moe.gmm_weight_grad) has no derivative, but a trainable tensor needs one}}
    %grad = moe.gmm_weight_grad "grad"(%rows, %up)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 32 x bf16>) -> !moe.tensor<2 x 32 x 32 x f32>
    moe.output "grad", %grad : !moe.tensor<2 x 32 x 32 x f32>
  }
}

// -----

// Outputs of rows that a node reads are kept for the caller's backward: they cannot be differentiated.
moe.graph @only_rows ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  // expected-error @+1 {{no output of entry 'forward' depends on an input that can be trained}}
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %half = moe.scale "half"(%up) by 0.5 : (!moe.tensor<R x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    moe.output "rows", %up : !moe.tensor<R x 32 x bf16>
  }
}

// -----

// The ranks of a group would each have a term of the gradient.
moe.graph @whole_rows ranks = 2 tp = 2 experts = 1 top_k = 1 max_tokens = 64 symbols {} {
  moe.entry @forward {
    // expected-error @+1 {{input 'x' of rows is whole at each of 2 ranks, so that its gradient would be a sum over them, for which there is no op: expected a part of its columns, or other trainable inputs}}
    %x = moe.input "x" : !moe.tensor<R x 32 x bf16>
    %w = moe.input "w" shard columns : !moe.tensor<1 x 32 x 16 x bf16>
    %r = moe.route "route" : () -> !moe.routing
    %y = moe.gmm "up"(%x, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<1 x 32 x 16 x bf16>) -> !moe.tensor<R x 16 x bf16>
    moe.output "y", %y shard columns : !moe.tensor<R x 16 x bf16>
  }
}

// -----

// No op multiplies rows with the routing weights, and none has the gradient of these without an activation.
moe.graph @weighted_rows ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    // expected-error @+1 {{input 'x' gives rows that are weighted without an activation between, so there is no op for the gradient of the weights 'expert_weights'}}
    %x = moe.input "x" : !moe.tensor<R x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 16 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.gmm "up"(%x, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 16 x bf16>) -> !moe.tensor<R x 16 x bf16>
    %y = moe.combine "combine"(%rows, %r) weights(%weights)
        : (!moe.tensor<R x 16 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 16 x bf16>
    moe.output "y", %y : !moe.tensor<T x 16 x bf16>
  }
}
