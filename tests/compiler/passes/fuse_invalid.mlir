// A kind of fusion that does not exist.
// RUN: not sluice-opt %s --fuse="kinds=activation,casts" 2>&1 | FileCheck %s

// CHECK: error: cannot fuse casts, expected all, none, or some of activation, activation-grad, scale
moe.graph @none ranks = 1 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
  }
}
