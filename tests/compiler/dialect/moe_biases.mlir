// Routes without ids, biases, column sums, row dots and outputs of rows with a sharding: the printed text parses to the
// same IR.
// RUN: sluice-opt %s | FileCheck %s
// RUN: sluice-opt %s | sluice-opt | FileCheck %s
// RUN: sluice-opt %s --mlir-print-op-generic | sluice-opt | FileCheck %s

// CHECK: moe.graph @biases
moe.graph @biases ranks = 2 tp = 2 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %w = moe.input "w" shard columns : !moe.tensor<2 x 32 x 48 x bf16>
    %b = moe.input "b" shard columns : !moe.tensor<2 x 48 x bf16>
    %dense = moe.input "dense" : !moe.tensor<32 x 48 x bf16>
    %dense_b = moe.input "dense_b" : !moe.tensor<48 x bf16>
    // CHECK: %routing = moe.route "route" {tensors = ["routing"]} : () -> !moe.routing
    %r = moe.route "route" {tensors = ["routing"]} : () -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK: %y = moe.gmm "up"(%rows, %w) bias(%b) {tensors = ["y"]} : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>, !moe.tensor<2 x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
    %y = moe.gmm "up"(%rows, %w) bias(%b) {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>, !moe.tensor<2 x 48 x bf16>)
        -> !moe.tensor<R x 48 x bf16>
    // CHECK-NEXT: %u = moe.gmm "dense"(%x, %dense) bias(%dense_b) alpha 5.000000e-01 {tensors = ["u"]} : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x bf16>, !moe.tensor<48 x bf16>) -> !moe.tensor<T x 48 x bf16>
    %u = moe.gmm "dense"(%x, %dense) bias(%dense_b) alpha 0.5 {tensors = ["u"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x bf16>, !moe.tensor<48 x bf16>) -> !moe.tensor<T x 48 x bf16>
    // CHECK-NEXT: moe.gmm_activation "up_act" swiglu(%rows, %w) bias(%b) {tensors = ["act"]} : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>, !moe.tensor<2 x 48 x bf16>) -> !moe.tensor<R x 24 x bf16>
    %act = moe.gmm_activation "up_act" swiglu(%rows, %w) bias(%b) {tensors = ["act"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>, !moe.tensor<2 x 48 x bf16>)
        -> !moe.tensor<R x 24 x bf16>
    // CHECK-NEXT: %z = moe.combine "combine"(%y, %routing) bias(%dense_b) {tensors = ["z"]} : (!moe.tensor<R x 48 x bf16>, !moe.routing, !moe.tensor<48 x bf16>) -> !moe.tensor<T x 48 x bf16>
    %z = moe.combine "combine"(%y, %r) bias(%dense_b) {tensors = ["z"]}
        : (!moe.tensor<R x 48 x bf16>, !moe.routing, !moe.tensor<48 x bf16>) -> !moe.tensor<T x 48 x bf16>
    // CHECK-NEXT: %b_grad = moe.column_sum "b_grad"(%y) accumulate split <experts, 1> {tensors = ["b_grad"]} : (!moe.tensor<R x 48 x bf16>) -> !moe.tensor<2 x 48 x f32>
    %db = moe.column_sum "b_grad"(%y) accumulate split <experts, 1> {tensors = ["b_grad"]}
        : (!moe.tensor<R x 48 x bf16>) -> !moe.tensor<2 x 48 x f32>
    // CHECK-NEXT: %dots = moe.row_dot "dots"(%y, %b) split <rows, 32> {tensors = ["dots"]} : (!moe.tensor<R x 48 x bf16>, !moe.tensor<2 x 48 x bf16>) -> !moe.tensor<R x f32>
    %dots = moe.row_dot "dots"(%y, %b) split <rows, 32> {tensors = ["dots"]}
        : (!moe.tensor<R x 48 x bf16>, !moe.tensor<2 x 48 x bf16>) -> !moe.tensor<R x f32>
    // CHECK-NEXT: %more = moe.row_dot "more"(%y, %b) add(%dots) {tensors = ["more"]} : (!moe.tensor<R x 48 x bf16>, !moe.tensor<2 x 48 x bf16>, !moe.tensor<R x f32>) -> !moe.tensor<R x f32>
    %more = moe.row_dot "more"(%y, %b) add(%dots) {tensors = ["more"]}
        : (!moe.tensor<R x 48 x bf16>, !moe.tensor<2 x 48 x bf16>, !moe.tensor<R x f32>) -> !moe.tensor<R x f32>
    // CHECK-NEXT: moe.column_sum "scaled"(%y) scale(%more) {tensors = ["scaled"]} : (!moe.tensor<R x 48 x bf16>, !moe.tensor<R x f32>) -> !moe.tensor<2 x 48 x bf16>
    %scaled = moe.column_sum "scaled"(%y) scale(%more) {tensors = ["scaled"]}
        : (!moe.tensor<R x 48 x bf16>, !moe.tensor<R x f32>) -> !moe.tensor<2 x 48 x bf16>
    // CHECK-NEXT: moe.column_sum "of_tokens"(%u) split <tokens, 16> {tensors = ["of_tokens"]} : (!moe.tensor<T x 48 x bf16>) -> !moe.tensor<48 x f32>
    %of_tokens = moe.column_sum "of_tokens"(%u) split <tokens, 16> {tensors = ["of_tokens"]}
        : (!moe.tensor<T x 48 x bf16>) -> !moe.tensor<48 x f32>
    // CHECK-NEXT: moe.row_dot "dots_of_tokens"(%u, %dense_b) : (!moe.tensor<T x 48 x bf16>, !moe.tensor<48 x bf16>) -> !moe.tensor<T x f32>
    %dots_of_tokens = moe.row_dot "dots_of_tokens"(%u, %dense_b)
        : (!moe.tensor<T x 48 x bf16>, !moe.tensor<48 x bf16>) -> !moe.tensor<T x f32>
    // CHECK-NEXT: moe.output "y", %y shard columns : !moe.tensor<R x 48 x bf16>
    moe.output "y", %y shard columns : !moe.tensor<R x 48 x bf16>
    // CHECK-NEXT: moe.output "b_grad", %b_grad : !moe.tensor<2 x 48 x f32>
    moe.output "b_grad", %db : !moe.tensor<2 x 48 x f32>
  }
}
