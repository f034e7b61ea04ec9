// RUN: sluice-opt %s --differentiate | FileCheck %s
// RUN: sluice-opt %s --differentiate=trainable=gate_up_weight,down_weight | FileCheck %s --check-prefix=WEIGHTS
// RUN: sluice-opt %s --differentiate=trainable=down_weight | FileCheck %s --check-prefix=DOWN
// RUN: sluice-opt %s --differentiate=trainable=expert_weights | FileCheck %s --check-prefix=ROUTER
// RUN: sluice-opt %s --differentiate=trainable=x | FileCheck %s --check-prefix=X

// The whole backward: products run on rows as they arrived, the routing weight is applied once, expert outputs are
// not kept.
// CHECK: moe.entry @forward
// CHECK: moe.output "y", %y
// CHECK-NOT: moe.output
// CHECK: moe.save "rows_x", %rows_x
// CHECK-NEXT: moe.save "gate_up", %gate_up
// CHECK-NEXT: moe.save "act", %act
// CHECK-NEXT: moe.save "routing", %routing
// CHECK-NEXT: }
// CHECK-NEXT: moe.entry @backward after @forward {
// CHECK-NEXT: %dy = moe.input "dy"
// CHECK-NEXT: moe.input "expert_weights"
// CHECK-NEXT: moe.input "gate_up_weight"
// CHECK-NEXT: moe.input "down_weight"
// CHECK-NEXT: moe.saved "rows_x"
// CHECK-NEXT: moe.saved "gate_up"
// CHECK-NEXT: moe.saved "act"
// CHECK-NEXT: moe.saved "routing"
// CHECK-NEXT: %rows_dy, %row_weights = moe.dispatch "dispatch"(%dy, %routing) weights(%expert_weights)
// CHECK-NEXT: %act_grad_y = moe.gmm "act_grad"(%rows_dy, %down_weight) transpose
// CHECK-NEXT: moe.gmm_weight_grad "down_weight_grad"(%act, %rows_dy) scale(%row_weights)
// CHECK-NEXT: %gate_up_grad, %row_weight_grad = moe.activation_grad "swiglu_grad" swiglu(%act_grad_y, %gate_up) weights(%row_weights)
// CHECK-NEXT: %rows_dx = moe.gmm "gate_grad"(%gate_up_grad, %gate_up_weight) transpose
// CHECK-NEXT: moe.gmm_weight_grad "gate_up_weight_grad"(%rows_x, %gate_up_grad)
// CHECK-NEXT: %dx, %d_expert_weights = moe.combine "combine"(%rows_dx, %routing) scalars(%row_weight_grad)
// CHECK-NEXT: moe.output "dx"
// CHECK-NEXT: moe.output "d_expert_weights"
// CHECK-NEXT: moe.output "gate_up_weight_grad"
// CHECK-NEXT: moe.output "down_weight_grad"
// CHECK-NEXT: }

// Nothing goes back to tokens if only weights are trained.
// WEIGHTS: moe.entry @backward
// WEIGHTS-NOT: moe.input "gate_up_weight"
// WEIGHTS-NOT: moe.combine
// WEIGHTS-NOT: "gate_grad"
// WEIGHTS: %gate_up_grad = moe.activation_grad
// WEIGHTS-NOT: row_weight_grad
// WEIGHTS: moe.output "gate_up_weight_grad"
// WEIGHTS-NEXT: moe.output "down_weight_grad"
// WEIGHTS-NEXT: }

// The last weight needs the activation and the rows that arrived, nothing else.
// DOWN: moe.output "y"
// DOWN-NEXT: moe.save "act"
// DOWN-NEXT: moe.save "routing"
// DOWN: moe.entry @backward
// DOWN: moe.dispatch
// DOWN-NEXT: moe.gmm_weight_grad "down_weight_grad"(%act, %rows_dy) scale(%row_weights)
// DOWN-NEXT: moe.output "down_weight_grad"
// DOWN-NEXT: }

// The routing weights alone: no weight is applied, and scalars go back with the narrowest rows that are available.
// ROUTER: moe.entry @backward
// ROUTER-NOT: moe.input "expert_weights"
// ROUTER: %rows_dy = moe.dispatch "dispatch"(%dy, %routing) {
// ROUTER-NEXT: %act_grad_y = moe.gmm "act_grad"
// ROUTER-NEXT: moe.activation_grad "swiglu_grad" swiglu(%act_grad_y, %gate_up) {
// ROUTER-NEXT: %returned_rows, %d_expert_weights = moe.combine "combine"(%act_grad_y, %routing) scalars(%row_weight_grad)
// ROUTER-NEXT: moe.output "d_expert_weights"
// ROUTER-NEXT: }

// Frozen weights have no weight gradient, and only gate_up is kept.
// X: moe.output "y"
// X-NEXT: moe.save "gate_up"
// X-NEXT: moe.save "routing"
// X: moe.entry @backward
// X-NOT: moe.gmm_weight_grad
// X-NOT: scalars
// X: %dx = moe.combine "combine"(%rows_dx, %routing) {
// X-NEXT: moe.output "dx"
// X-NEXT: }

moe.graph @layer ranks = 2 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %wu = moe.input "gate_up_weight" : !moe.tensor<2 x 32 x 48 x bf16>
    %wd = moe.input "down_weight" : !moe.tensor<2 x 24 x 32 x bf16>
    %r = moe.route "route"(%ids) {tensors = ["routing"]} : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows_x"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up_proj"(%rows, %wu) {tensors = ["gate_up"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
    %act = moe.activation "swiglu" swiglu(%up) {tensors = ["act"]}
        : (!moe.tensor<R x 48 x bf16>) -> !moe.tensor<R x 24 x bf16>
    %down = moe.gmm "down_proj"(%act, %wd) {tensors = ["down_out"]}
        : (!moe.tensor<R x 24 x bf16>, !moe.tensor<2 x 24 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%down, %r) weights(%weights) {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    moe.output "rows_x", %rows : !moe.tensor<R x 32 x bf16>
  }
}
