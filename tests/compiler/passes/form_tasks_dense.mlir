// Nodes on tokens become families of space tokens, their weight gradients of space once, which other programs do
// not have; fused nodes become one family.
// RUN: sluice-opt %s --form-tasks="gmm-columns=16 grad-rows=16 grad-columns=32" | FileCheck %s

// CHECK: task.space experts "experts" slot = 1 window = 1
// CHECK-NEXT: task.space once "once" slot = 1 window = 1
// CHECK: task.buffer input "wu" : [32, 40] bf16
// CHECK: task.buffer temp "dense.0" : [T, 40] bf16
// CHECK: task.buffer output "dwu" : [32, 40] bf16
moe.graph @dense ranks = 2 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  // CHECK: task.entry "forward"
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %dact = moe.input "dact" : !moe.tensor<T x 20 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 40 x bf16>
    %wd = moe.input "wd" : !moe.tensor<2 x 32 x 20 x bf16>
    %wu = moe.input "wu" : !moe.tensor<32 x 40 x bf16>
    %wt = moe.input "wt" : !moe.tensor<32 x 20 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // CHECK-NEXT: task.family gmm "dense" on "tokens" tiles = 3 <n = 40, k = 32, tile_n = 16, alpha = 5.000000e-01 : f32> core unified reads ["x", "wu"] writes ["dense.0"]
    %up = moe.gmm "dense"(%x, %wu) alpha 0.5 split <tokens, 8>
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 40 x bf16>) -> !moe.tensor<T x 40 x bf16>
    // CHECK-NEXT: task.family activation "dense_act" on "tokens" tiles = 1 <n = 20, activation = reglu> core unified reads ["dense.0"] writes ["dense_act.0"]
    %act = moe.activation "dense_act" reglu(%up) split <tokens, 8>
        : (!moe.tensor<T x 40 x bf16>) -> !moe.tensor<T x 20 x bf16>
    // CHECK-NEXT: task.family activation_grad "dense_act_grad" on "tokens" tiles = 1 <n = 20, activation = reglu> core unified reads ["dact", "dense.0", ""] writes ["dense_act_grad.0", ""]
    %dup = moe.activation_grad "dense_act_grad" reglu(%dact, %up) split <tokens, 8>
        : (!moe.tensor<T x 20 x bf16>, !moe.tensor<T x 40 x bf16>) -> !moe.tensor<T x 40 x bf16>
    // CHECK-NEXT: task.family gmm_weight_grad "dense_grad" on "once" tiles = 4 <m = 32, n = 40, tile_m = 16, tile_n = 32, flags = 1, alpha = -2.000000e+00 : f32> core unified reads ["x", "dense_act_grad.0", ""] writes ["dwu"]
    %dwu = moe.gmm_weight_grad "dense_grad"(%x, %dup) alpha -2.0 accumulate split <tokens, 8>
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 40 x bf16>) -> !moe.tensor<32 x 40 x bf16>
    // CHECK-NEXT: task.family gmm "dense_down" on "tokens" tiles = 2 <n = 32, k = 20, tile_n = 16, flags = 1> core unified reads ["dense_act.0", "wt"]
    %down = moe.gmm "dense_down"(%act, %wt) transpose split <tokens, 8>
        : (!moe.tensor<T x 20 x bf16>, !moe.tensor<32 x 20 x bf16>) -> !moe.tensor<T x 32 x bf16>
    // CHECK-NEXT: task.family dispatch
    %rows = moe.dispatch "dispatch"(%x, %r) split <rows, 48>
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK-NEXT: task.family gmm_activation "up_swiglu" on "rows" tiles = 2 <n = 20, k = 32, tile_n = 16> core unified reads ["dispatch.0", "w"] writes ["up_swiglu.0", "up_swiglu.1"]
    %ract, %gate_up = moe.gmm_activation "up_swiglu" swiglu(%rows, %w) split <rows, 48>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 40 x bf16>)
        -> (!moe.tensor<R x 20 x bf16>, !moe.tensor<R x 40 x bf16>)
    // CHECK-NEXT: task.family gmm_activation_grad "grads" on "rows" tiles = 2 <n = 20, k = 32, tile_n = 16, flags = 4, alpha = 4.000000e+00 : f32> core unified reads ["dispatch.0", "wt_r", "up_swiglu.1", ""] writes ["grads.0", ""]
    %wt_r = moe.input "wt_r" : !moe.tensor<2 x 20 x 32 x bf16>
    %dgu = moe.gmm_activation_grad "grads" swiglu(%rows, %wt_r, %gate_up) transpose alpha 4.0 split <rows, 48>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 20 x 32 x bf16>, !moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    // CHECK-NEXT: task.family scale "half" on "rows" tiles = 1 <n = 40, alpha = 5.000000e-01 : f32> core unified reads ["grads.0"] writes ["half.0"]
    %half = moe.scale "half"(%dgu) by 0.5 split <rows, 48>
        : (!moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    // CHECK-NEXT: task.family add "both" on "rows" tiles = 1 <n = 40> core unified reads ["half.0", "up_swiglu.1"] writes ["both"]
    %both = moe.add "both"(%half, %gate_up) split <rows, 48>
        : (!moe.tensor<R x 40 x bf16>, !moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    // CHECK-NEXT: task.family gmm "last"
    %last = moe.gmm "last"(%ract, %wd) transpose split <rows, 48>
        : (!moe.tensor<R x 20 x bf16>, !moe.tensor<2 x 32 x 20 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // CHECK-NEXT: task.family combine_return
    // CHECK-NEXT: task.family combine_sum "combine.sum" on "tokens" tiles = 1 <n = 32, k = 2> core unified reads ["combine.returned", "", ""] writes ["combine.0", ""]
    %back = moe.combine "combine"(%last, %r) split <tokens, 8>
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    // CHECK-NEXT: task.family add "sum" on "tokens" tiles = 1 <n = 32> core unified reads ["combine.0", "dense_down.0"] writes ["y"]
    %y = moe.add "sum"(%back, %down) split <tokens, 8>
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    moe.output "dwu", %dwu : !moe.tensor<32 x 40 x bf16>
    moe.output "both", %both : !moe.tensor<R x 40 x bf16>
  }
}
