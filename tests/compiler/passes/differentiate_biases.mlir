// The gradient of a bias is the sum of the columns of its product's gradient; that of the routing weights gets the dot
// product of the gradient and each bias on the way to the activation.
// RUN: sluice-opt %s --differentiate | FileCheck %s
// RUN: sluice-opt %s --differentiate="accumulate grads=BF16" | FileCheck %s --check-prefix=ADD
// RUN: sluice-opt %s --differentiate=trainable=x | FileCheck %s --check-prefix=X
// RUN: sluice-opt %s --differentiate=trainable=expert_weights | FileCheck %s --check-prefix=WEIGHTS
// RUN: sluice-opt %s --differentiate=trainable=out_bias,down_bias | FileCheck %s --check-prefix=BIASES

// CHECK: moe.entry @backward
// CHECK-NEXT: moe.input "dy"
// CHECK-NEXT: moe.input "expert_weights"
// CHECK-NEXT: moe.input "gate_up_weight"
// CHECK-NEXT: moe.input "down_weight"
// CHECK-NEXT: moe.input "down_bias"
// CHECK-NEXT: moe.input "second_weight"
// CHECK-NEXT: moe.input "second_bias"
// CHECK-NEXT: moe.saved
// CHECK: %out_bias_grad = moe.column_sum "out_bias_grad"(%dy) {tensors = ["out_bias_grad"]} : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<32 x f32>
// CHECK-NEXT: %rows_dy, %row_weights = moe.dispatch "dispatch"(%dy, %routing) weights(%expert_weights)
// CHECK-NEXT: %down_out_grad_y = moe.gmm "down_out_grad"(%rows_dy, %second_weight) transpose
// CHECK-NEXT: %second_bias_grad = moe.column_sum "second_bias_grad"(%rows_dy) scale(%row_weights) {tensors = ["second_bias_grad"]} : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x f32>) -> !moe.tensor<2 x 32 x f32>
// CHECK-NEXT: moe.gmm_weight_grad "second_weight_grad"
// CHECK-NEXT: %act_grad_y = moe.gmm "act_grad"(%down_out_grad_y, %down_weight) transpose alpha 5.000000e-01
// CHECK-NEXT: moe.column_sum "down_bias_grad"(%down_out_grad_y) scale(%row_weights)
// CHECK-NEXT: moe.gmm_weight_grad "down_weight_grad"(%act, %down_out_grad_y) scale(%row_weights) alpha 5.000000e-01
// CHECK-NEXT: %gate_up_grad, %row_weight_grad = moe.activation_grad "swiglu_grad" swiglu(%act_grad_y, %gate_up) weights(%row_weights)
// CHECK-NEXT: %second_bias_dot = moe.row_dot "second_bias_dot"(%rows_dy, %second_bias) add(%row_weight_grad) {tensors = ["second_bias_dot"]}
// CHECK-NEXT: %down_bias_dot = moe.row_dot "down_bias_dot"(%down_out_grad_y, %down_bias) add(%second_bias_dot) {tensors = ["down_bias_dot"]}
// CHECK-NEXT: moe.gmm "gate_grad"
// CHECK-NEXT: moe.column_sum "gate_up_bias_grad"(%gate_up_grad) {tensors
// CHECK-NEXT: moe.gmm_weight_grad "gate_up_weight_grad"(%rows_x, %gate_up_grad) {
// CHECK-NEXT: moe.combine "combine"({{.*}}) scalars(%down_bias_dot)
// CHECK-NEXT: moe.output "dx"
// CHECK-NEXT: moe.output "d_expert_weights"
// CHECK-NEXT: moe.output "gate_up_weight_grad"
// CHECK-NEXT: moe.output "gate_up_bias_grad", %gate_up_bias_grad : !moe.tensor<2 x 48 x f32>
// CHECK-NEXT: moe.output "down_weight_grad"
// CHECK-NEXT: moe.output "down_bias_grad", %down_bias_grad : !moe.tensor<2 x 24 x f32>
// CHECK-NEXT: moe.output "second_weight_grad"
// CHECK-NEXT: moe.output "second_bias_grad"
// CHECK-NEXT: moe.output "out_bias_grad", %out_bias_grad : !moe.tensor<32 x f32>

// ADD: moe.column_sum "out_bias_grad"(%dy) accumulate {{.*}} -> !moe.tensor<32 x bf16>
// ADD: moe.column_sum "down_bias_grad"({{.*}}) scale(%row_weights) accumulate {{.*}} -> !moe.tensor<2 x 24 x bf16>

// X: moe.entry @backward
// X-NOT: column_sum
// X-NOT: row_dot
// X: moe.output "dx"

// WEIGHTS: moe.entry @backward
// WEIGHTS-NOT: column_sum
// WEIGHTS: moe.row_dot "second_bias_dot"
// WEIGHTS-NEXT: moe.row_dot "down_bias_dot"
// WEIGHTS-NEXT: moe.combine "combine"({{.*}}) scalars(%down_bias_dot)

// Without a gradient of rows none is sent.
// BIASES: moe.entry @backward
// BIASES: moe.column_sum "out_bias_grad"
// BIASES-NEXT: moe.dispatch
// BIASES-NEXT: moe.gmm "down_out_grad"
// BIASES-NEXT: moe.column_sum "down_bias_grad"
// BIASES-NEXT: moe.output "down_bias_grad"
// BIASES-NEXT: moe.output "out_bias_grad"

moe.graph @layer ranks = 2 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %wu = moe.input "gate_up_weight" : !moe.tensor<2 x 32 x 48 x bf16>
    %bu = moe.input "gate_up_bias" : !moe.tensor<2 x 48 x bf16>
    %wd = moe.input "down_weight" : !moe.tensor<2 x 24 x 24 x bf16>
    %bd = moe.input "down_bias" : !moe.tensor<2 x 24 x bf16>
    %ws = moe.input "second_weight" : !moe.tensor<2 x 24 x 32 x bf16>
    %bs = moe.input "second_bias" : !moe.tensor<2 x 32 x bf16>
    %bo = moe.input "out_bias" : !moe.tensor<32 x bf16>
    %r = moe.route "route"(%ids) {tensors = ["routing"]} : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows_x"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up_proj"(%rows, %wu) bias(%bu) {tensors = ["gate_up"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>, !moe.tensor<2 x 48 x bf16>)
        -> !moe.tensor<R x 48 x bf16>
    %act = moe.activation "swiglu" swiglu(%up) {tensors = ["act"]}
        : (!moe.tensor<R x 48 x bf16>) -> !moe.tensor<R x 24 x bf16>
    %down = moe.gmm "down_proj"(%act, %wd) bias(%bd) alpha 0.5 {tensors = ["down_out"]}
        : (!moe.tensor<R x 24 x bf16>, !moe.tensor<2 x 24 x 24 x bf16>, !moe.tensor<2 x 24 x bf16>)
        -> !moe.tensor<R x 24 x bf16>
    %second = moe.gmm "second_proj"(%down, %ws) bias(%bs) {tensors = ["second_out"]}
        : (!moe.tensor<R x 24 x bf16>, !moe.tensor<2 x 24 x 32 x bf16>, !moe.tensor<2 x 32 x bf16>)
        -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%second, %r) weights(%weights) bias(%bo) {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>, !moe.tensor<32 x bf16>)
        -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}
