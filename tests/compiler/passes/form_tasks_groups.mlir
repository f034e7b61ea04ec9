// Nodes whose rows are cut by the larger of two sizes become families of space groups, which other programs do
// not have; pieces are cut by the smaller size. The window of groups is as long as that of rows.
// RUN: sluicec %s --target %S/small_target.json --fuse none --stop-after=cut-tasks | FileCheck %s

// CHECK: space rows : rows of 32 window 8
// CHECK-NEXT: space sends : sends of 32
// CHECK-NEXT: space returns : returns of 32
// CHECK-NEXT: space experts :
// CHECK-NEXT: space groups : groups of 96 window 2
moe.graph @groups ranks = 2 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 40 x bf16>
    %wd = moe.input "wd" : !moe.tensor<2 x 20 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // CHECK: family forward/dispatch : dispatch over sends
    %rows = moe.dispatch "dispatch"(%x, %r) split <rows, 32>
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK: family forward/up : gmm over groups
    %up = moe.gmm "up"(%rows, %w) split <rows, 96>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    // CHECK: family forward/act : activation over rows
    %act = moe.activation "act" reglu(%up) split <rows, 32> : (!moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 20 x bf16>
    // CHECK: family forward/grad : gmm_weight_grad over experts
    %grad = moe.gmm_weight_grad "grad"(%rows, %up) split <experts, 1>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 40 x bf16>) -> !moe.tensor<2 x 32 x 40 x f32>
    // CHECK: family forward/down : gmm over groups
    %down = moe.gmm "down"(%act, %wd) split <rows, 96>
        : (!moe.tensor<R x 20 x bf16>, !moe.tensor<2 x 20 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // CHECK: family forward/combine.return : combine_return over returns
    %y = moe.combine "combine"(%down, %r) split <tokens, 8>
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    moe.output "g", %grad : !moe.tensor<2 x 32 x 40 x f32>
  }
}
