// Nodes become families; a combine becomes two; results become buffers by what they are used for.
// RUN: sluice-opt %s --form-tasks="cores=3 gmm-columns=16 grad-rows=16 grad-columns=32 rows-window=4 graph-hash=7 option-line=x" | FileCheck %s

// CHECK: task.program "train" ranks = 2 experts = 4 top_k = 2 max_tokens = 64 cores = 3 target "cpu" options "x" graph_hash = 7 symbols {hidden = 32 : i64} {
// CHECK-NEXT: task.space tokens "tokens" slot = 8 window = 32
// CHECK-NEXT: task.space rows "rows" slot = 48 window = 4
// CHECK-NEXT: task.space sends "sends" slot = 48 window = 64
// CHECK-NEXT: task.space returns "returns" slot = 48 window = 64
// CHECK-NEXT: task.space experts "experts" slot = 1 window = 1
// CHECK-NEXT: task.buffer input "x" : [T, 32] bf16 alias "tokens"
// CHECK-NEXT: task.buffer input "expert_ids" : [T, 2] i32
// CHECK-NEXT: task.buffer input "probs" : [T, 2] f32
// CHECK-NEXT: task.buffer input "w" : [2, 32, 40] bf16
// CHECK-NEXT: task.buffer input "wd" : [2, 20, 32] bf16
// CHECK-NEXT: task.buffer saved "rows_x" : [R, 32] bf16
// CHECK-NEXT: task.buffer output "gate_up" : [R, 40] bf16
// CHECK-NEXT: task.buffer temp "act" : [R, 20] bf16
// CHECK-NEXT: task.buffer temp "down.0" : [R, 32] bf16
// CHECK-NEXT: task.buffer output "y" : [T, 32] bf16
// CHECK-NEXT: task.buffer temp "combine.returned" : [P, 32] bf16
// CHECK-NEXT: task.buffer temp "rows_dy" : [R, 32] bf16
// CHECK-NEXT: task.buffer temp "row_weights" : [R] f32
// CHECK-NEXT: task.buffer output "dw" : [2, 32, 32] f32
// CHECK-NEXT: task.buffer output "dw_sum" : [2, 32, 32] f32
// CHECK-NEXT: task.buffer output "dx" : [T, 32] bf16
// CHECK-NEXT: task.buffer temp "d_probs" : [T, 2] f32
// The name is taken by forward, so the entry's is put before it.
// CHECK-NEXT: task.buffer temp "backward.combine.returned" : [P, 32] bf16
// CHECK-NEXT: task.buffer temp "backward.combine.returned_scalars" : [P] f32
moe.graph @train ranks = 2 experts = 4 top_k = 2 max_tokens = 64 symbols {hidden = 32 : i64} {
  // CHECK-NEXT: task.entry "forward" ids "expert_ids" {
  moe.entry @forward {
    %x = moe.input "x" alias "tokens" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %probs = moe.input "probs" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 40 x bf16>
    %wd = moe.input "wd" : !moe.tensor<2 x 20 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // CHECK-NEXT: task.family dispatch "dispatch" on "sends" tiles = 1 <n = 32> core unified reads ["x", ""] writes ["rows_x", ""]
    %rows = moe.dispatch "dispatch"(%x, %r) split <rows, 48>
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK-NEXT: task.family gmm "up" on "rows" tiles = 3 <n = 40, k = 32, tile_n = 16> core unified reads ["rows_x", "w"] writes ["gate_up"]
    %up = moe.gmm "up"(%rows, %w) split <rows, 48>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    // CHECK-NEXT: task.family activation "swiglu" on "rows" tiles = 1 <n = 20> core unified reads ["gate_up"] writes ["act"] alias "silu"
    %act = moe.activation "swiglu" swiglu(%up) split <rows, 48> {alias = "silu", tensors = ["act"]}
        : (!moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 20 x bf16>
    // CHECK-NEXT: task.family gmm "down" on "rows" tiles = 2 <n = 32, k = 20, tile_n = 16>
    %down = moe.gmm "down"(%act, %wd) split <rows, 48>
        : (!moe.tensor<R x 20 x bf16>, !moe.tensor<2 x 20 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // CHECK-NEXT: task.family combine_return "combine.return" on "returns" tiles = 1 <n = 32> core unified reads ["down.0", ""] writes ["combine.returned", ""]
    // CHECK-NEXT: task.family combine_sum "combine.sum" on "tokens" tiles = 1 <n = 32, k = 2> core unified reads ["combine.returned", "probs", ""] writes ["y", ""]
    // CHECK-NEXT: }
    %y = moe.combine "combine"(%down, %r) weights(%probs) split <tokens, 8>
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    moe.output "gate_up", %up : !moe.tensor<R x 40 x bf16>
    moe.save "rows_x", %rows : !moe.tensor<R x 32 x bf16>
    moe.save "routing", %r : !moe.routing
  }
  // CHECK-NEXT: task.entry "backward" routing "forward" {
  moe.entry @backward after @forward {
    %dy = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %probs = moe.input "probs" : !moe.tensor<T x 2 x f32>
    %r = moe.saved "routing" : !moe.routing
    %rows_x = moe.saved "rows_x" : !moe.tensor<R x 32 x bf16>
    // CHECK-NEXT: task.family dispatch "dispatch" on "sends" tiles = 1 <n = 32> core unified reads ["x", "probs"] writes ["rows_dy", "row_weights"]
    %rows, %weights = moe.dispatch "dispatch"(%dy, %r) weights(%probs) split <rows, 48> {tensors = ["rows_dy", "row_weights"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>)
        -> (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x f32>)
    // CHECK-NEXT: task.family gmm_weight_grad "grad" on "experts" tiles = 2 <m = 32, n = 32, tile_m = 16, tile_n = 32> core unified reads ["rows_x", "rows_dy", "row_weights"] writes ["dw"]
    %dw = moe.gmm_weight_grad "grad"(%rows_x, %rows) scale(%weights) split <experts, 1>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 32 x bf16>, !moe.tensor<R x f32>) -> !moe.tensor<2 x 32 x 32 x f32>
    // CHECK-NEXT: task.family gmm_weight_grad "sum" on "experts" tiles = 2 <m = 32, n = 32, tile_m = 16, tile_n = 32, flags = 1> {{.*}} writes ["dw_sum"]
    %dw_sum = moe.gmm_weight_grad "sum"(%rows_x, %rows) accumulate split <experts, 1>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 32 x bf16>) -> !moe.tensor<2 x 32 x 32 x f32>
    // CHECK-NEXT: task.family combine_return "combine.return" {{.*}} reads ["rows_dy", "row_weights"] writes ["backward.combine.returned", "backward.combine.returned_scalars"]
    // CHECK-NEXT: task.family combine_sum "combine.sum" {{.*}} reads ["backward.combine.returned", "", "backward.combine.returned_scalars"] writes ["dx", "d_probs"]
    %dx, %dp = moe.combine "combine"(%rows, %r) scalars(%weights) split <rows, 48> {tensors = ["any", "d_probs"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<R x f32>)
        -> (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 2 x f32>)
    moe.output "dx", %dx : !moe.tensor<T x 32 x bf16>
    moe.output "dw", %dw : !moe.tensor<2 x 32 x 32 x f32>
    moe.output "dw_sum", %dw_sum : !moe.tensor<2 x 32 x 32 x f32>
  }
}
