// Outputs of rows that no node reads are results, and inputs of rows have gradients of rows; with keep=regather, rows are
// dispatched again instead of being kept.
// RUN: sluice-opt %s --differentiate --split-input-file | FileCheck %s
// RUN: sluice-opt %s --differentiate=keep=minimal --split-input-file | FileCheck %s
// RUN: sluice-opt %s --differentiate=keep=regather --split-input-file | FileCheck %s --check-prefix=AGAIN
// RUN: sluice-opt %s --differentiate="keep=regather trainable=x" --split-input-file | FileCheck %s --check-prefix=X

// CHECK-LABEL: @column
// CHECK: moe.output "y", %y shard columns : !moe.tensor<R x 24 x bf16>
// CHECK-NOT: moe.output "rows_x"
// CHECK: moe.save "rows_x"
// CHECK: moe.entry @backward
// CHECK-NEXT: %dy = moe.input "dy" shard columns : !moe.tensor<R x 24 x bf16>
// CHECK-NEXT: moe.input "weight"
// CHECK-NEXT: moe.saved "rows_x"
// CHECK-NEXT: moe.saved "routing"
// CHECK-NEXT: moe.gmm "gate_grad"(%dy, %weight)
// CHECK-NEXT: moe.gmm_weight_grad "weight_grad"(%dy, %rows_x)
// CHECK-NEXT: moe.combine
// CHECK-NEXT: moe.output "dx", %dx : !moe.tensor<T x 32 x bf16>

// AGAIN-LABEL: @column
// AGAIN: moe.output "y"
// AGAIN-NEXT: moe.save "routing"
// AGAIN-NEXT: }
// AGAIN: moe.entry @backward
// AGAIN-NEXT: moe.input "dy"
// AGAIN-NEXT: %x = moe.input "x"
// AGAIN: %rows_x_again = moe.dispatch "rows_x_again"(%x, %routing) {tensors = ["rows_x_again"]} :
// AGAIN-NEXT: moe.gmm_weight_grad "weight_grad"(%dy, %rows_x_again)

// Nothing reads the rows again.
// X-LABEL: @column
// X: moe.entry @backward
// X-NOT: again
// X: moe.output "dx"
moe.graph @column ranks = 2 tp = 2 experts = 1 top_k = 1 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %w = moe.input "weight" shard rows : !moe.tensor<1 x 24 x 32 x bf16>
    %r = moe.route "route" {tensors = ["routing"]} : () -> !moe.routing
    %rows = moe.dispatch "gather"(%x, %r) {tensors = ["rows_x"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %y = moe.gmm "linear"(%rows, %w) transpose {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<1 x 24 x 32 x bf16>) -> !moe.tensor<R x 24 x bf16>
    moe.output "y", %y shard columns : !moe.tensor<R x 24 x bf16>
    moe.output "rows_x", %rows : !moe.tensor<R x 32 x bf16>
  }
}

// -----

// Two readers: the sum has the name.
// CHECK-LABEL: @row
// CHECK: moe.entry @backward
// CHECK-NEXT: moe.input "dy"
// CHECK-NEXT: %x = moe.input "x" shard columns
// CHECK: moe.gmm "x_grad"(%rows_dy, %second) {tensors = ["dx_1"]}
// CHECK: moe.gmm "x_grad_2"(%rows_dy, %weight)
// CHECK: %dx = moe.add "x_grad_sum"
// CHECK: moe.output "dx", %dx shard columns : !moe.tensor<R x 16 x bf16>

// AGAIN-LABEL: @row
// AGAIN: moe.entry @backward
// AGAIN-NOT: again
moe.graph @row ranks = 2 tp = 2 experts = 1 top_k = 1 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" shard columns : !moe.tensor<R x 16 x bf16>
    %w = moe.input "weight" shard columns : !moe.tensor<1 x 48 x 16 x bf16>
    %v = moe.input "second" shard columns : !moe.tensor<1 x 48 x 16 x bf16>
    %r = moe.route "route" {tensors = ["routing"]} : () -> !moe.routing
    %a = moe.gmm "linear"(%x, %w) transpose {tensors = ["rows_a"]}
        : (!moe.tensor<R x 16 x bf16>, !moe.tensor<1 x 48 x 16 x bf16>) -> !moe.tensor<R x 48 x bf16>
    %b = moe.gmm "other"(%x, %v) transpose {tensors = ["rows_b"]}
        : (!moe.tensor<R x 16 x bf16>, !moe.tensor<1 x 48 x 16 x bf16>) -> !moe.tensor<R x 48 x bf16>
    %sum = moe.add "both"(%a, %b) {tensors = ["rows_y"]}
        : (!moe.tensor<R x 48 x bf16>, !moe.tensor<R x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
    %y = moe.combine "scatter"(%sum, %r) {tensors = ["y"]}
        : (!moe.tensor<R x 48 x bf16>, !moe.routing) -> !moe.tensor<T x 48 x bf16>
    moe.output "y", %y : !moe.tensor<T x 48 x bf16>
  }
}
