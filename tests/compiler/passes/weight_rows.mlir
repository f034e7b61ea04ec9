// Rows are weighted where they are written: an activation by its gradient, others by a scale of their own.
// RUN: sluice-opt %s --differentiate --weight-rows | FileCheck %s
// RUN: sluice-opt %s --differentiate --weight-rows --weight-rows | FileCheck %s
// RUN: sluice-opt %s --differentiate=keep=minimal --weight-rows | FileCheck %s
// RUN: sluice-opt %s --differentiate=trainable=wd,expert_weights --weight-rows | FileCheck %s --check-prefix=DOWN
// RUN: sluice-opt %s --round-products --differentiate --weight-rows | FileCheck %s --check-prefix=ROUNDED
// RUN: sluice-opt %s --round-products=encode=fp8e4m3 --differentiate --weight-rows | FileCheck %s --check-prefix=ROUNDED

// The activation has three readers in the backward, and is neither kept nor computed again. The sum for a bias and the
// gradient of the routing weights do without the weighted one.
// CHECK: moe.entry @forward
// CHECK-NOT: moe.save "act"
// CHECK: moe.save "low", %low
// CHECK-NOT: moe.save "act"
// CHECK: moe.entry @backward
// CHECK-NOT: moe.saved "act"
// CHECK-NOT: moe.activation "
// CHECK: %low_weighted = moe.scale "low_weighted"(%low) weights(%row_weights) by 1.000000e+00
// CHECK: moe.gmm_weight_grad "b_grad"(%low_weighted, %rows_dy) {
// CHECK: moe.column_sum "bias_grad"(%rows_dy) scale(%row_weights)
// CHECK: %gate_up_grad, %row_weight_grad, %[[ACT:act.*weighted]] = moe.activation_grad "swiglu_grad" swiglu_clamp(%{{.*}}, %gate_up) weights(%row_weights) limit 7.000000e+00 gives_act
// CHECK-DAG: moe.gmm_weight_grad "wd_grad"(%[[ACT]], %rows_dy) {
// CHECK-DAG: moe.gmm_weight_grad "a_grad"(%[[ACT]], %low_grad_y) {
// CHECK-DAG: moe.gmm_weight_grad "wt_grad"(%rows_dy, %[[ACT]]) {
// CHECK: moe.row_dot "bias_dot"(%rows_dy, %bias) add(%row_weight_grad)

// Nothing multiplies the gradient of gate_up by the weights here.
// DOWN: moe.save "act"
// DOWN: %act_weighted = moe.scale "act_weighted"(%act) weights(%row_weights) by 1.000000e+00
// DOWN: moe.gmm_weight_grad "wd_grad"(%act_weighted, %rows_dy) {
// DOWN-NOT: gives_act

// What a product rounds it weights as it loads it, before it rounds.
// ROUNDED-NOT: moe.scale
// ROUNDED-NOT: gives_act
// ROUNDED: moe.gmm_weight_grad "wd_grad"(%act, %rows_dy) scale(%row_weights)
moe.graph @layer ranks = 1 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %wu = moe.input "gate_up_weight" : !moe.tensor<4 x 32 x 64 x bf16>
    %wd = moe.input "wd" : !moe.tensor<4 x 32 x 32 x bf16>
    %wt = moe.input "wt" : !moe.tensor<4 x 32 x 32 x bf16>
    %a = moe.input "a" : !moe.tensor<4 x 32 x 32 x bf16>
    %b = moe.input "b" : !moe.tensor<4 x 32 x 32 x bf16>
    %bias = moe.input "bias" : !moe.tensor<4 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows_x"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up_proj"(%rows, %wu) {tensors = ["gate_up"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 64 x bf16>) -> !moe.tensor<R x 64 x bf16>
    %act = moe.activation "swiglu" swiglu_clamp(%up) limit 7.0 {tensors = ["act"]}
        : (!moe.tensor<R x 64 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %down = moe.gmm "down"(%act, %wd)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %turned = moe.gmm "turned"(%act, %wt) bias(%bias) transpose
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 32 x bf16>, !moe.tensor<4 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %low = moe.gmm "low"(%act, %a) {tensors = ["low"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %high = moe.gmm "high"(%low, %b)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %two = moe.add "two"(%down, %turned)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %all = moe.add "all"(%two, %high)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%all, %r) weights(%weights) {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}
