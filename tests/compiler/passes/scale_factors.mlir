// Factors that are rounded by an amax get it: that of rows from the step or from the caller, that of a weight from the caller.
// RUN: sluice-opt %s --round-products=encode=fp8e4m3,grads=fp8e5m2 --differentiate --scale-factors | FileCheck %s
// RUN: sluice-opt %s --round-products=encode=fp8e4m3,grads=fp8e5m2 --differentiate --scale-factors=delayed | FileCheck %s --check-prefix=DELAYED
// RUN: sluice-opt %s --round-products=encode=fp8e4m3,grads=fp8e5m2 --differentiate --scale-factors=outputs | FileCheck %s --check-prefix=OUTPUTS
// RUN: sluice-opt %s --round-products=encode=fp8e4m3 --differentiate --scale-factors --fuse | FileCheck %s --check-prefix=FUSED

// CHECK: %wt_amax = moe.input "wt_amax" : !moe.tensor<4 x 1 x f32>
// CHECK: %rows_amax = moe.amax "rows_amax"(%rows)
// CHECK: moe.gmm "up"(%rows, %w) row_amax(%rows_amax) weight_amax(%w_amax) {round_a = #moe<rounding e4m3>, round_b = #moe<rounding e4m3>, round_grads = #moe<rounding e5m2>
// CHECK: moe.gmm "down"(%act, %wt) row_amax(%act_amax) weight_amax(%wt_amax) transpose
// A gradient that two products read is measured once.
// CHECK: %rows_dy_amax = moe.amax "rows_dy_amax"(%rows_dy)
// CHECK-NOT: moe.amax "rows_dy
// CHECK: moe.gmm "act_grad"(%rows_dy, %wt) row_amax(%rows_dy_amax) weight_amax(%wt_amax) {round_a = #moe<rounding e5m2>
// CHECK: moe.gmm_weight_grad "wt_grad"(%rows_dy, %act) a_amax(%rows_dy_amax) b_amax(%{{.*}}) {round_a = #moe<rounding e5m2>, round_b = #moe<rounding e4m3>

// DELAYED: %rows_amax_used = moe.input "rows_amax_used" : !moe.tensor<4 x 1 x f32>
// DELAYED: %[[FOUND:.*]] = moe.amax "rows_amax"(%rows)
// DELAYED: moe.gmm "up"(%rows, %w) row_amax(%rows_amax_used)
// DELAYED: moe.output "rows_amax", %[[FOUND]]
// The backward reads what the forward kept, whose amax is an output there.
// DELAYED: moe.entry @backward
// DELAYED-NOT: moe.output "rows_amax"
// DELAYED: moe.gmm_weight_grad "w_grad"(%rows, %up_grad) a_amax(%rows_amax_used) b_amax(%up_grad_amax_used)
// DELAYED: moe.output "up_grad_amax"

// OUTPUTS-NOT: _amax_used
// OUTPUTS: moe.gmm "up"(%rows, %w) row_amax(%rows_amax)
// OUTPUTS: moe.output "rows_amax", %rows_amax
// OUTPUTS: moe.entry @backward
// OUTPUTS-NOT: moe.output "rows_amax"
// OUTPUTS: a_amax(%[[AGAIN:.*]]) b_amax(%up_grad_amax)
// OUTPUTS: moe.output "up_grad_amax", %up_grad_amax

// FUSED: moe.gmm_activation "up_swiglu" swiglu(%rows, %w) row_amax(%rows_amax) weight_amax(%w_amax)
// FUSED: moe.gmm_activation_grad "act_grad_swiglu_grad" swiglu(%rows_dy, %wt, %up) row_amax(%rows_dy_amax) weight_amax(%wt_amax)
moe.graph @layer ranks = 1 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<4 x 32 x 64 x bf16>
    %wt = moe.input "wt" : !moe.tensor<4 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up"(%rows, %w) {tensors = ["up"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 64 x bf16>) -> !moe.tensor<R x 64 x bf16>
    %act = moe.activation "swiglu" swiglu(%up) {tensors = ["act"]} : (!moe.tensor<R x 64 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %down = moe.gmm "down"(%act, %wt) transpose
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%down, %r) {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}
