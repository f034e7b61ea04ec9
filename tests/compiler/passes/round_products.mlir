// Products round their factors, and the derivative of a product rounds gradients and the factors that it reads again.
// RUN: sluice-opt %s --round-products | FileCheck %s --check-prefix=ROUNDED
// RUN: sluice-opt %s --round-products=encode=mxfp8,grads=mxfp8e5m2 --differentiate | FileCheck %s
// RUN: sluice-opt %s --round-products=encode=mxfp8:32x32:floor --differentiate | FileCheck %s --check-prefix=SQUARES
// RUN: sluice-opt %s --round-products --differentiate --fuse | FileCheck %s --check-prefix=FUSED

// ROUNDED: moe.gmm "up"{{.*}}round_a = #moe<rounding mx_e4m3>, round_b = #moe<rounding mx_e4m3>, round_grads = #moe<rounding mx_e4m3>
// ROUNDED: moe.gmm "down"{{.*}}round_a = #moe<rounding mx_e4m3>

// CHECK: moe.gmm "up"{{.*}}round_a = #moe<rounding mx_e4m3>, round_b = #moe<rounding mx_e4m3>, round_grads = #moe<rounding mx_e5m2>
// The weight is rounded along the other sum, and gradients have their own format.
// CHECK: moe.gmm "act_grad"{{.*}} {round_a = #moe<rounding mx_e5m2>, round_b = #moe<rounding mx_e4m3>,
// A transposed weight has the gradient first.
// CHECK: moe.gmm_weight_grad "wt_grad"(%rows_dy, %act) {round_a = #moe<rounding mx_e5m2>, round_b = #moe<rounding mx_e4m3>,
// CHECK: moe.gmm_weight_grad "w_grad"(%rows, %up_grad) {round_a = #moe<rounding mx_e4m3>, round_b = #moe<rounding mx_e5m2>,

// Squares serve both sums; rows and gradients have none.
// SQUARES: moe.gmm "up"{{.*}}round_a = #moe<rounding mx_e4m3_floor>, round_b = #moe<rounding mx_e4m3_square_floor>
// SQUARES: moe.gmm "act_grad"{{.*}} {round_a = #moe<rounding mx_e4m3_floor>, round_b = #moe<rounding mx_e4m3_square_floor>,
// SQUARES: moe.gmm_weight_grad "wt_grad"{{.*}}round_a = #moe<rounding mx_e4m3_floor>, round_b = #moe<rounding mx_e4m3_floor>

// FUSED: moe.gmm_activation "up_swiglu"{{.*}}round_a = #moe<rounding mx_e4m3>, round_b = #moe<rounding mx_e4m3>,
// FUSED: moe.gmm_activation_grad "act_grad_swiglu_grad"{{.*}}round_a = #moe<rounding mx_e4m3>, round_b = #moe<rounding mx_e4m3>,
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
