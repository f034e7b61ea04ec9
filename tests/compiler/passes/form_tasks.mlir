// Nodes become families; a combine becomes two; results become buffers according to their use.
// cut-tasks gives them slots, windows and tiles.
// RUN: sluicec %s --target %S/small_target.json --fuse none --stop-after=cut-tasks | FileCheck %s
// RUN: sluicec %s --target %S/small_target.json --fuse none --stop-after=form-tasks > %t.txt
// RUN: FileCheck %s --check-prefix=FORMED < %t.txt
// RUN: sluice as %t.txt -o %t.slp
// RUN: sluice dump %t.slp --format=text | cmp - %t.txt
// FORMED: family forward/up : gmm over rows tiles 1 on unified
// FORMED: tiling n=40 k=32{{$}}
// FORMED-NOT: {{^}}event
// FORMED-NOT: {{^}}lane

// CHECK: program train
// CHECK-NEXT: target small
// CHECK-NEXT: options "--fuse none"
// CHECK-NEXT: graph 0x{{[0-9a-f]*[1-9a-f]}}
// CHECK-NEXT: symbol hidden = 32
// CHECK-NEXT: limits ranks 2 experts 4 top_k 2 max_tokens 64 cores 3{{$}}
// CHECK: buffer x : BF16 [T, 32] input{{$}}
// CHECK-NEXT: buffer expert_ids : I32 [T, 2] input{{$}}
// CHECK-NEXT: buffer probs : F32 [T, 2] input{{$}}
// CHECK-NEXT: buffer w : BF16 [2, 32, 40] input{{$}}
// CHECK-NEXT: buffer wd : BF16 [2, 20, 32] input{{$}}
// CHECK-NEXT: buffer rows_x : BF16 [R, 32] saved{{$}}
// CHECK-NEXT: buffer gate_up : BF16 [R, 40] output{{$}}
// CHECK-NEXT: buffer act : BF16 [R, 20] temp{{$}}
// CHECK-NEXT: buffer down.0 : BF16 [R, 32] temp{{$}}
// CHECK-NEXT: buffer y : BF16 [T, 32] output{{$}}
// CHECK-NEXT: buffer combine.returned : BF16 [P, 32] temp{{$}}
// CHECK-NEXT: buffer rows_dy : BF16 [R, 32] temp{{$}}
// CHECK-NEXT: buffer row_weights : F32 [R] temp{{$}}
// CHECK-NEXT: buffer rows_x_weighted : BF16 [R, 32] temp{{$}}
// CHECK-NEXT: buffer dw : F32 [2, 32, 32] output{{$}}
// CHECK-NEXT: buffer dw_sum : F32 [2, 32, 32] output{{$}}
// CHECK-NEXT: buffer dx : BF16 [T, 32] output{{$}}
// CHECK-NEXT: buffer d_probs : F32 [T, 2] temp{{$}}
// forward already uses the name, so the entry's name is put before it.
// CHECK-NEXT: buffer backward.combine.returned : BF16 [P, 32] temp{{$}}
// CHECK-NEXT: buffer backward.combine.returned_scalars : F32 [P] temp{{$}}

// CHECK: entry forward routed by expert_ids
// CHECK-NEXT: entry backward routed as forward

// CHECK: space tokens : tokens of 8 window 32
// CHECK-NEXT: space rows : rows of 48 window 8
// CHECK-NEXT: space sends : sends of 48 window 64
// CHECK-NEXT: space returns : returns of 48 window 64
// CHECK-NEXT: space experts : experts of 1 window 1
moe.graph @train ranks = 2 experts = 4 top_k = 2 max_tokens = 64 symbols {hidden = 32 : i64} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %probs = moe.input "probs" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 40 x bf16>
    %wd = moe.input "wd" : !moe.tensor<2 x 20 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // CHECK: family forward/dispatch : dispatch over sends tiles 1 on unified
    // CHECK-NEXT: reads x{{$}}
    // CHECK-NEXT: writes rows_x{{$}}
    // CHECK-NEXT: tiling n=32{{$}}
    %rows = moe.dispatch "dispatch"(%x, %r) split <rows, 48>
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK: family forward/up : gmm over rows tiles 3 on unified
    // CHECK-NEXT: reads rows_x, w{{$}}
    // CHECK-NEXT: writes gate_up{{$}}
    // CHECK-NEXT: tiling n=40 k=32 tile_n=16{{$}}
    %up = moe.gmm "up"(%rows, %w) split <rows, 48>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    // CHECK: family forward/swiglu : activation over rows tiles 1 on unified 
    // CHECK-NEXT: reads gate_up{{$}}
    // CHECK-NEXT: writes act{{$}}
    // CHECK-NEXT: tiling n=20{{$}}
    %act = moe.activation "swiglu" swiglu(%up) split <rows, 48> {tensors = ["act"]}
        : (!moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 20 x bf16>
    // CHECK: family forward/down : gmm over rows tiles 2
    // CHECK: tiling n=32 k=20 tile_n=16{{$}}
    %down = moe.gmm "down"(%act, %wd) split <rows, 48>
        : (!moe.tensor<R x 20 x bf16>, !moe.tensor<2 x 20 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // CHECK: family forward/combine.return : combine_return over returns tiles 1 on unified
    // CHECK-NEXT: reads down.0{{$}}
    // CHECK-NEXT: writes combine.returned{{$}}
    // CHECK-NEXT: tiling n=32{{$}}
    // CHECK: family forward/combine.sum : combine_sum over tokens tiles 1 on unified
    // CHECK-NEXT: reads combine.returned, probs{{$}}
    // CHECK-NEXT: writes y{{$}}
    // CHECK-NEXT: tiling n=32 k=2{{$}}
    %y = moe.combine "combine"(%down, %r) weights(%probs) split <tokens, 8>
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    moe.output "gate_up", %up : !moe.tensor<R x 40 x bf16>
    moe.save "rows_x", %rows : !moe.tensor<R x 32 x bf16>
    moe.save "routing", %r : !moe.routing
  }
  moe.entry @backward after @forward {
    %dy = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %probs = moe.input "probs" : !moe.tensor<T x 2 x f32>
    %r = moe.saved "routing" : !moe.routing
    %rows_x = moe.saved "rows_x" : !moe.tensor<R x 32 x bf16>
    // CHECK: family backward/dispatch : dispatch over sends tiles 1 on unified
    // CHECK-NEXT: reads x, probs{{$}}
    // CHECK-NEXT: writes rows_dy, row_weights{{$}}
    // CHECK-NEXT: tiling n=32{{$}}
    %rows, %weights = moe.dispatch "dispatch"(%dy, %r) weights(%probs) split <rows, 48> {tensors = ["rows_dy", "row_weights"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>)
        -> (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x f32>)
    // CHECK: family backward/rows_x_weighted : scale over rows tiles 1 on unified
    // CHECK-NEXT: reads rows_x, row_weights{{$}}
    // CHECK-NEXT: writes rows_x_weighted{{$}}
    // CHECK: family backward/grad : gmm_weight_grad over experts tiles 2 on unified
    // CHECK-NEXT: reads rows_x_weighted, rows_dy{{$}}
    // CHECK-NEXT: writes dw{{$}}
    // CHECK-NEXT: tiling m=32 n=32 tile_m=16 tile_n=32{{$}}
    %dw = moe.gmm_weight_grad "grad"(%rows_x, %rows) scale(%weights) split <experts, 1>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 32 x bf16>, !moe.tensor<R x f32>) -> !moe.tensor<2 x 32 x 32 x f32>
    // CHECK: family backward/sum : gmm_weight_grad over experts tiles 2
    // CHECK: writes dw_sum{{$}}
    // CHECK-NEXT: tiling m=32 n=32 tile_m=16 tile_n=32 flags=1{{$}}
    %dw_sum = moe.gmm_weight_grad "sum"(%rows_x, %rows) accumulate split <experts, 1>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 32 x bf16>) -> !moe.tensor<2 x 32 x 32 x f32>
    // CHECK: family backward/combine.return : combine_return
    // CHECK-NEXT: reads rows_dy, row_weights{{$}}
    // CHECK-NEXT: writes backward.combine.returned, backward.combine.returned_scalars{{$}}
    // CHECK: family backward/combine.sum : combine_sum
    // CHECK-NEXT: reads backward.combine.returned, none, backward.combine.returned_scalars{{$}}
    // CHECK-NEXT: writes dx, d_probs{{$}}
    %dx, %dp = moe.combine "combine"(%rows, %r) scalars(%weights) split <rows, 48> {tensors = ["any", "d_probs"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<R x f32>)
        -> (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 2 x f32>)
    moe.output "dx", %dx : !moe.tensor<T x 32 x bf16>
    moe.output "dw", %dw : !moe.tensor<2 x 32 x 32 x f32>
    moe.output "dw_sum", %dw_sum : !moe.tensor<2 x 32 x 32 x f32>
  }
}
