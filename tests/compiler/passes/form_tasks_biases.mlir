// An entry whose route has no ids; biases as operands, column sums of space experts or once, cut like columns of products,
// and row dots.
// RUN: sluicec %s --target %S/small_target.json --fuse activation --stop-after=cut-tasks > %t.txt
// RUN: FileCheck %s < %t.txt
// RUN: sluice as %t.txt -o %t.slp
// RUN: sluice dump %t.slp --format=text | cmp - %t.txt
// RUN: sluicec %s --target %S/small_target.json --fuse activation --stop-after=propagate-splits | FileCheck %s --check-prefix=SPLITS

// SPLITS: moe.column_sum "b_grad"{{.*}} split <experts, 1>
// SPLITS: moe.row_dot "dots"{{.*}} split <rows,
// SPLITS: moe.column_sum "of_tokens"{{.*}} split <tokens,
// SPLITS: moe.row_dot "dots_of_tokens"{{.*}} split <tokens,

// CHECK: buffer y : BF16 [R, 40] output shard columns{{$}}
// CHECK: entry forward{{$}}
// CHECK: space once : once of 1 window 1
moe.graph @biases ranks = 2 tp = 2 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %w = moe.input "w" shard columns : !moe.tensor<2 x 32 x 40 x bf16>
    %b = moe.input "b" shard columns : !moe.tensor<2 x 40 x bf16>
    %wu = moe.input "wu" shard gate_up_columns : !moe.tensor<2 x 32 x 48 x bf16>
    %bu = moe.input "bu" shard gate_up_columns : !moe.tensor<2 x 48 x bf16>
    %wd = moe.input "wd" shard rows : !moe.tensor<2 x 24 x 32 x bf16>
    %bo = moe.input "bo" : !moe.tensor<32 x bf16>
    %r = moe.route "route" : () -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK: family forward/up : gmm over rows tiles 3
    // CHECK-NEXT: reads rows, w, b{{$}}
    // CHECK-NEXT: writes y{{$}}
    %y = moe.gmm "up"(%rows, %w) bias(%b) {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 40 x bf16>, !moe.tensor<2 x 40 x bf16>)
        -> !moe.tensor<R x 40 x bf16>
    // CHECK: family forward/gate_act : gmm_activation over rows
    // CHECK-NEXT: reads rows, wu, bu{{$}}
    // CHECK-NEXT: writes act{{$}}
    %gate_up = moe.gmm "gate"(%rows, %wu) bias(%bu) {tensors = ["gate_up"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>, !moe.tensor<2 x 48 x bf16>)
        -> !moe.tensor<R x 48 x bf16>
    %act = moe.activation "act" swiglu(%gate_up) {tensors = ["act"]}
        : (!moe.tensor<R x 48 x bf16>) -> !moe.tensor<R x 24 x bf16>
    %down = moe.gmm "down"(%act, %wd) {tensors = ["down"]}
        : (!moe.tensor<R x 24 x bf16>, !moe.tensor<2 x 24 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // CHECK: family forward/combine.sum : combine_sum over tokens
    // CHECK-NEXT: reads combine.returned, none, none, bo{{$}}
    %z = moe.combine "combine"(%down, %r) bias(%bo) {tensors = ["z"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    // CHECK: family forward/b_grad : column_sum over experts tiles 3 on unified
    // CHECK-NEXT: reads y{{$}}
    // CHECK-NEXT: writes b_grad{{$}}
    // CHECK-NEXT: tiling n=40 tile_n=16 flags=1{{$}}
    %db = moe.column_sum "b_grad"(%y) accumulate {tensors = ["b_grad"]}
        : (!moe.tensor<R x 40 x bf16>) -> !moe.tensor<2 x 40 x f32>
    // CHECK: family forward/dots : row_dot over rows tiles 1
    // CHECK-NEXT: reads y, b{{$}}
    // CHECK-NEXT: writes dots{{$}}
    // CHECK-NEXT: tiling n=40{{$}}
    %dots = moe.row_dot "dots"(%y, %b) {tensors = ["dots"]}
        : (!moe.tensor<R x 40 x bf16>, !moe.tensor<2 x 40 x bf16>) -> !moe.tensor<R x f32>
    // CHECK: family forward/of_tokens : column_sum over once tiles 2
    // CHECK-NEXT: reads z{{$}}
    %of_tokens = moe.column_sum "of_tokens"(%z) {tensors = ["of_tokens"]}
        : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<32 x bf16>
    // CHECK: family forward/dots_of_tokens : row_dot over tokens tiles 1
    // CHECK-NEXT: reads z, bo{{$}}
    %dots_of_tokens = moe.row_dot "dots_of_tokens"(%z, %bo) {tensors = ["dots_of_tokens"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x bf16>) -> !moe.tensor<T x f32>
    moe.output "y", %y shard columns : !moe.tensor<R x 40 x bf16>
    moe.output "z", %z : !moe.tensor<T x 32 x bf16>
    moe.output "dots", %dots : !moe.tensor<R x f32>
    moe.output "b_grad", %db : !moe.tensor<2 x 40 x f32>
    moe.output "of_tokens", %of_tokens : !moe.tensor<32 x bf16>
    moe.output "dots_of_tokens", %dots_of_tokens : !moe.tensor<T x f32>
  }
}
