// Nodes on tokens become families of space tokens, their weight gradients of space once, which other programs do
// not have; fused nodes become one family.
// RUN: sluicec %s --target %S/small_target.json --fuse none --stop-after=cut-tasks | FileCheck %s

// CHECK: buffer wu : BF16 [32, 40] input{{$}}
// CHECK: buffer dense.0 : BF16 [T, 40] temp{{$}}
// CHECK: buffer dwu : BF16 [32, 40] output{{$}}
moe.graph @dense ranks = 2 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  // CHECK: space experts : experts of 1 window 1
  // CHECK-NEXT: space once : once of 1 window 1
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %dact = moe.input "dact" : !moe.tensor<T x 20 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 40 x bf16>
    %wd = moe.input "wd" : !moe.tensor<2 x 32 x 20 x bf16>
    %wu = moe.input "wu" : !moe.tensor<32 x 40 x bf16>
    %wt = moe.input "wt" : !moe.tensor<32 x 20 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // CHECK: family forward/dense : gmm over tokens tiles 3 on unified
    // CHECK-NEXT: reads x, wu{{$}}
    // CHECK-NEXT: writes dense.0{{$}}
    // CHECK-NEXT: tiling n=40 k=32 tile_n=16 alpha=0.5{{$}}
    %up = moe.gmm "dense"(%x, %wu) alpha 0.5 split <tokens, 8>
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 40 x bf16>) -> !moe.tensor<T x 40 x bf16>
    // CHECK: family forward/dense_act : activation over tokens tiles 1 on unified
    // CHECK-NEXT: reads dense.0{{$}}
    // CHECK-NEXT: writes dense_act.0{{$}}
    // CHECK-NEXT: tiling n=20 activation=reglu{{$}}
    %act = moe.activation "dense_act" reglu(%up) split <tokens, 8>
        : (!moe.tensor<T x 40 x bf16>) -> !moe.tensor<T x 20 x bf16>
    // CHECK: family forward/dense_act_grad : activation_grad over tokens tiles 1 on unified
    // CHECK-NEXT: reads dact, dense.0{{$}}
    // CHECK-NEXT: writes dense_act_grad.0{{$}}
    // CHECK-NEXT: tiling n=20 activation=reglu{{$}}
    %dup = moe.activation_grad "dense_act_grad" reglu(%dact, %up) split <tokens, 8>
        : (!moe.tensor<T x 20 x bf16>, !moe.tensor<T x 40 x bf16>) -> !moe.tensor<T x 40 x bf16>
    // CHECK: family forward/dense_grad : gmm_weight_grad over once tiles 4 on unified
    // CHECK-NEXT: reads x, dense_act_grad.0{{$}}
    // CHECK-NEXT: writes dwu{{$}}
    // CHECK-NEXT: tiling m=32 n=40 tile_m=16 tile_n=32 flags=1 alpha=-2{{$}}
    %dwu = moe.gmm_weight_grad "dense_grad"(%x, %dup) alpha -2.0 accumulate split <tokens, 8>
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 40 x bf16>) -> !moe.tensor<32 x 40 x bf16>
    // CHECK: family forward/dense_down : gmm over tokens tiles 2 on unified
    // CHECK-NEXT: reads dense_act.0, wt{{$}}
    // CHECK-NEXT: writes dense_down.0{{$}}
    // CHECK-NEXT: tiling n=32 k=20 tile_n=16 flags=1{{$}}
    %down = moe.gmm "dense_down"(%act, %wt) transpose split <tokens, 8>
        : (!moe.tensor<T x 20 x bf16>, !moe.tensor<32 x 20 x bf16>) -> !moe.tensor<T x 32 x bf16>
    // CHECK: family forward/{{.*}} : dispatch over
    %rows = moe.dispatch "dispatch"(%x, %r) split <rows, 48>
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK: family forward/up_swiglu : gmm_activation over rows tiles 2 on unified
    // CHECK-NEXT: reads dispatch.0, w{{$}}
    // CHECK-NEXT: writes up_swiglu.0, up_swiglu.1{{$}}
    // CHECK-NEXT: tiling n=20 k=32 tile_n=16{{$}}
    %ract, %gate_up = moe.gmm_activation "up_swiglu" swiglu(%rows, %w) split <rows, 48>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 40 x bf16>)
        -> (!moe.tensor<R x 20 x bf16>, !moe.tensor<R x 40 x bf16>)
    // CHECK: family forward/grads : gmm_activation_grad over rows tiles 2 on unified
    // CHECK-NEXT: reads dispatch.0, wt_r, up_swiglu.1{{$}}
    // CHECK-NEXT: writes grads.0{{$}}
    // CHECK-NEXT: tiling n=20 k=32 tile_n=16 flags=4 alpha=4{{$}}
    %wt_r = moe.input "wt_r" : !moe.tensor<2 x 20 x 32 x bf16>
    %dgu = moe.gmm_activation_grad "grads" swiglu(%rows, %wt_r, %gate_up) transpose alpha 4.0 split <rows, 48>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 20 x 32 x bf16>, !moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    // CHECK: family forward/half : scale over rows tiles 1 on unified
    // CHECK-NEXT: reads grads.0{{$}}
    // CHECK-NEXT: writes half.0{{$}}
    // CHECK-NEXT: tiling n=40 alpha=0.5{{$}}
    %half = moe.scale "half"(%dgu) by 0.5 split <rows, 48>
        : (!moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    // CHECK: family forward/both : add over rows tiles 1 on unified
    // CHECK-NEXT: reads half.0, up_swiglu.1{{$}}
    // CHECK-NEXT: writes both{{$}}
    // CHECK-NEXT: tiling n=40{{$}}
    %both = moe.add "both"(%half, %gate_up) split <rows, 48>
        : (!moe.tensor<R x 40 x bf16>, !moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    // CHECK: family forward/last : gmm
    %last = moe.gmm "last"(%ract, %wd) transpose split <rows, 48>
        : (!moe.tensor<R x 20 x bf16>, !moe.tensor<2 x 32 x 20 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // CHECK: family forward/{{.*}} : combine_return over
    // CHECK: family forward/combine.sum : combine_sum over tokens tiles 1 on unified
    // CHECK-NEXT: reads combine.returned{{$}}
    // CHECK-NEXT: writes combine.0{{$}}
    // CHECK-NEXT: tiling n=32 k=2{{$}}
    %back = moe.combine "combine"(%last, %r) split <tokens, 8>
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    // CHECK: family forward/sum : add over tokens tiles 1 on unified
    // CHECK-NEXT: reads combine.0, dense_down.0{{$}}
    // CHECK-NEXT: writes y{{$}}
    // CHECK-NEXT: tiling n=32{{$}}
    %y = moe.add "sum"(%back, %down) split <tokens, 8>
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    moe.output "dwu", %dwu : !moe.tensor<32 x 40 x bf16>
    moe.output "both", %both : !moe.tensor<R x 40 x bf16>
  }
}
