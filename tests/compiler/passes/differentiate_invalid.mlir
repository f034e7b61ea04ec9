// RUN: sluice-opt %s --differentiate --split-input-file -verify-diagnostics

// Weights need an activation between: its gradient op gives their gradient.
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

// Two readers.
moe.graph @two_readers ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error @+1 {{node 'up' is a second one with a gradient for tensor 'dispatch', expected one: there is no op that adds two}}
    %up = moe.gmm "up"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %up2 = moe.gmm "up2"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%up, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    %y2 = moe.combine "combine2"(%up2, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y2", %y2 : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// The derived entry has a name of its own.
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

// There is one forward to differentiate.
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

// Rows are kept for a backward of the caller's: they are no output to differentiate.
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
    moe.output "rows", %up : !moe.tensor<R x 32 x bf16>
  }
}
