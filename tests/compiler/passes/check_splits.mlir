// Accepts a graph with splits, whatever set them.
// RUN: sluice-opt %s --check-splits | FileCheck %s

// CHECK: moe.dispatch {{.*}} split <rows, 32>
moe.graph @done ranks = 1 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) split <rows, 32>
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%rows, %r) split <tokens, 8>
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    %g = moe.gmm_weight_grad "grad"(%rows, %rows) split <experts, 1> {moe.resplit = ["dispatch"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 32 x bf16>) -> !moe.tensor<4 x 32 x 32 x f32>
    moe.output "g", %g : !moe.tensor<4 x 32 x 32 x f32>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}
