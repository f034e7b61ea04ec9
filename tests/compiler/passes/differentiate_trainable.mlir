// A named tensor must be an input with a gradient, on which an output depends.
// RUN: not sluice-opt %s --differentiate=trainable=x,v 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not sluice-opt %s --differentiate=trainable=expert_ids 2>&1 | FileCheck %s --check-prefix=IDS
// RUN: not sluice-opt %s --differentiate=trainable=x,expert_weights 2>&1 | FileCheck %s --check-prefix=UNUSED
// RUN: sluice-opt %s --differentiate | FileCheck %s --check-prefix=ALL

// UNKNOWN: error: cannot train 'v', expected inputs of entry 'forward' that have a gradient: x, expert_weights, w
// IDS: error: cannot train 'expert_ids', expected inputs of entry 'forward' that have a gradient: x, expert_weights, w
// UNUSED: error: no output of entry 'forward' depends on 'expert_weights', so it has no gradient
// ALL: moe.output "dx"
// ALL-NEXT: moe.output "w_grad"
// ALL-NEXT: }

moe.graph @named ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
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
}
