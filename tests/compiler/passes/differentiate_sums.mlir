// A tensor that several nodes read gets the sum of their gradients, the last reader first.
// RUN: sluice-opt %s --differentiate --split-input-file | FileCheck %s
// RUN: sluice-opt %s --differentiate=trainable=x --split-input-file | FileCheck %s --check-prefix=X

// Weighted rows on two paths are added before the weights are applied; one dot product covers both.
// CHECK-LABEL: moe.graph @two_products
// CHECK: moe.entry @backward
// CHECK: %rows_dy, %row_weights = moe.dispatch "dispatch"(%dy, %routing) weights(%expert_weights)
// CHECK-NEXT: %[[SECOND:.*]] = moe.gmm "act_grad"(%rows_dy, %second) transpose alpha 5.000000e-01
// CHECK-NEXT: moe.gmm_weight_grad "second_grad"(%act, %rows_dy) scale(%row_weights) alpha 5.000000e-01
// CHECK-NEXT: %[[FIRST:.*]] = moe.gmm "act_grad_2"(%rows_dy, %first) {
// CHECK-NEXT: %act_grad = moe.add "act_grad_sum"(%[[SECOND]], %[[FIRST]])
// CHECK-NEXT: moe.gmm_weight_grad "first_grad"(%rows_dy, %act) scale(%row_weights) {
// CHECK-NEXT: %gate_up_grad, %row_weight_grad = moe.activation_grad "swiglu_grad" swiglu(%act_grad, %gate_up) weights(%row_weights)
moe.graph @two_products ranks = 2 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %wu = moe.input "up" : !moe.tensor<2 x 32 x 48 x bf16>
    %w1 = moe.input "first" : !moe.tensor<2 x 32 x 24 x bf16>
    %w2 = moe.input "second" : !moe.tensor<2 x 24 x 32 x bf16>
    %r = moe.route "route"(%ids) {tensors = ["routing"]} : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows_x"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up_proj"(%rows, %wu) {tensors = ["gate_up"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
    %act = moe.activation "swiglu" swiglu(%up) {tensors = ["act"]}
        : (!moe.tensor<R x 48 x bf16>) -> !moe.tensor<R x 24 x bf16>
    %down1 = moe.gmm "down1"(%act, %w1) transpose
        : (!moe.tensor<R x 24 x bf16>, !moe.tensor<2 x 32 x 24 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %down2 = moe.gmm "down2"(%act, %w2) alpha 0.5
        : (!moe.tensor<R x 24 x bf16>, !moe.tensor<2 x 24 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %down = moe.add "sum"(%down1, %down2) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%down, %r) weights(%weights) {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// A dense branch and a path around the layer, with its own factor: dx is the sum of three, whatever its parts are
// called.
// CHECK-LABEL: moe.graph @branches
// CHECK: moe.entry @backward
// CHECK-NEXT: %dy = moe.input "dy"
// CHECK: %[[PAST:.*]] = moe.scale "x_grad"(%dy) by 2.500000e-01 {tensors = ["dx_1"]}
// CHECK-NEXT: %d_dense_act = moe.gmm "dense_act_grad"(%dy, %dense_down) transpose
// CHECK-NEXT: moe.gmm_weight_grad "dense_down_grad"(%dense_act, %dy) {{.*}} -> !moe.tensor<16 x 32 x f32>
// CHECK-NEXT: %[[GRAD:.*]] = moe.activation_grad "dense_reglu_grad" reglu(%d_dense_act, %dense_gate_up)
// CHECK-NEXT: %[[DENSE:.*]] = moe.gmm "x_grad_2"(%[[GRAD]], %dense_up) transpose
// CHECK-NEXT: %[[TWO:.*]] = moe.add "x_grad_sum"(%[[PAST]], %[[DENSE]])
// CHECK-NEXT: moe.gmm_weight_grad "dense_up_grad"(%x, %[[GRAD]])
// CHECK-NEXT: %rows_dy = moe.dispatch "dispatch"(%dy, %routing)
// CHECK-NEXT: %[[ROWS:.*]] = moe.gmm "gate_grad"(%rows_dy, %w) transpose
// CHECK-NEXT: moe.gmm_weight_grad "w_grad"(%rows_x, %rows_dy)
// CHECK-NEXT: %[[ROUTED:.*]] = moe.combine "combine"(%[[ROWS]], %routing)
// CHECK-NEXT: %dx = moe.add "x_grad_sum_2"(%[[TWO]], %[[ROUTED]]) {tensors = ["dx"]}
// CHECK-NEXT: moe.output "dx", %dx
// Frozen weights have no gradient.
// X-LABEL: moe.graph @branches
// X: moe.entry @backward
// X-NOT: moe.gmm_weight_grad
// X: moe.output "dx", %dx
moe.graph @branches ranks = 2 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 32 x bf16>
    %du = moe.input "dense_up" : !moe.tensor<32 x 32 x bf16>
    %dd = moe.input "dense_down" : !moe.tensor<16 x 32 x bf16>
    %r = moe.route "route"(%ids) {tensors = ["routing"]} : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows_x"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %out = moe.gmm "product"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %routed = moe.combine "combine"(%out, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    %dgu = moe.gmm "dense_up_proj"(%x, %du) {tensors = ["dense_gate_up"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    %dact = moe.activation "dense_reglu" reglu(%dgu) {tensors = ["dense_act"]}
        : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 16 x bf16>
    %dense = moe.gmm "dense_down_proj"(%dact, %dd) {tensors = ["dense_y"]}
        : (!moe.tensor<T x 16 x bf16>, !moe.tensor<16 x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    %past = moe.scale "past"(%x) by 0.25 : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    %sum = moe.add "sum"(%routed, %dense) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    %y = moe.add "sum2"(%sum, %past) {tensors = ["y"]} : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// A gradient that also belongs to another tensor, or to the caller, is copied for its output.
// The entry has the layer's routing, though nothing in it depends on that.
// CHECK-LABEL: moe.graph @copies
// CHECK: moe.save "routing"
// CHECK: moe.entry @backward
// CHECK-NEXT: %dy = moe.input "dy"
// CHECK-NEXT: %routing = moe.saved "routing"
// CHECK-NEXT: %[[DX:.*]] = moe.scale "dx_copy"(%dy) by 1.000000e+00 {tensors = ["dx"]}
// CHECK-NEXT: %[[DB:.*]] = moe.scale "d_bias_copy"(%dy) by 1.000000e+00 {tensors = ["d_bias"]}
// CHECK-NEXT: moe.output "dx", %[[DX]]
// CHECK-NEXT: moe.output "d_bias", %[[DB]]
moe.graph @copies ranks = 2 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %b = moe.input "bias" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) {tensors = ["routing"]} : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %y = moe.add "sum"(%x, %b) {tensors = ["y"]} : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}
