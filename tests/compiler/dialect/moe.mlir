// The layer's two entries: the printed text parses to the same IR.
// RUN: sluice-opt %s | FileCheck %s
// RUN: sluice-opt %s | sluice-opt | FileCheck %s
// RUN: sluice-opt %s --mlir-print-op-generic | sluice-opt | FileCheck %s

// CHECK: moe.graph @train ranks = 4 experts = 64 top_k = 8 max_tokens = 4096 symbols {ep = 4 : i64} {
moe.graph @train ranks = 4 experts = 64 top_k = 8 max_tokens = 4096 symbols {ep = 4 : i64} {
  // CHECK-NEXT: moe.entry @forward {
  moe.entry @forward {
    // CHECK-NEXT: %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    // CHECK-NEXT: %expert_ids = moe.input "expert_ids" : !moe.tensor<T x 8 x i32>
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 8 x i32>
    %probs = moe.input "expert_weights" : !moe.tensor<T x 8 x f32>
    %w_up = moe.input "gate_up_weight" : !moe.tensor<16 x 32 x 48 x bf16>
    %w_down = moe.input "down_weight" : !moe.tensor<16 x 24 x 32 x bf16>
    // CHECK: %routing = moe.route "route"(%expert_ids) {tensors = ["routing"]} : (!moe.tensor<T x 8 x i32>) -> !moe.routing
    %routing = moe.route "route"(%ids) {tensors = ["routing"]} : (!moe.tensor<T x 8 x i32>) -> !moe.routing
    // CHECK-NEXT: %rows_x = moe.dispatch "dispatch"(%x, %routing) split <rows, 128> {tensors = ["rows_x"]} : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %rows_x = moe.dispatch "dispatch"(%x, %routing) split <rows, 128>
        {tensors = ["rows_x"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK-NEXT: %gate_up = moe.gmm "up_proj"(%rows_x, %gate_up_weight) {tensors = ["gate_up"]} :
    %gate_up = moe.gmm "up_proj"(%rows_x, %w_up) {tensors = ["gate_up"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<16 x 32 x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
    // CHECK-NEXT: %act = moe.activation "swiglu" swiglu(%gate_up) {tensors = ["act"]} :
    %act = moe.activation "swiglu" swiglu(%gate_up) {tensors = ["act"]}
        : (!moe.tensor<R x 48 x bf16>) -> !moe.tensor<R x 24 x bf16>
    // CHECK-NEXT: %[[DOWN:[0-9]+]] = moe.gmm "down_proj"(%act, %down_weight) :
    %down = moe.gmm "down_proj"(%act, %w_down)
        : (!moe.tensor<R x 24 x bf16>, !moe.tensor<16 x 24 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // CHECK-NEXT: %y = moe.combine "combine"(%[[DOWN]], %routing) weights(%expert_weights) {tensors = ["y"]} :
    %y = moe.combine "combine"(%down, %routing) weights(%probs) {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 8 x f32>) -> !moe.tensor<T x 32 x bf16>
    // CHECK-NEXT: moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    // CHECK-NEXT: moe.save "rows_x", %rows_x : !moe.tensor<R x 32 x bf16>
    moe.save "rows_x", %rows_x : !moe.tensor<R x 32 x bf16>
    moe.save "gate_up", %gate_up : !moe.tensor<R x 48 x bf16>
    moe.save "act", %act : !moe.tensor<R x 24 x bf16>
    // CHECK: moe.save "routing", %routing : !moe.routing
    moe.save "routing", %routing : !moe.routing
  }

  // CHECK: moe.entry @backward after @forward {
  moe.entry @backward after @forward {
    %dy = moe.input "dy" : !moe.tensor<T x 32 x bf16>
    %probs = moe.input "expert_weights" : !moe.tensor<T x 8 x f32>
    %w_up = moe.input "gate_up_weight" : !moe.tensor<16 x 32 x 48 x bf16>
    %w_down = moe.input "down_weight" : !moe.tensor<16 x 24 x 32 x bf16>
    // CHECK: %routing = moe.saved "routing" : !moe.routing
    %routing = moe.saved "routing" : !moe.routing
    %rows_x = moe.saved "rows_x" : !moe.tensor<R x 32 x bf16>
    %gate_up = moe.saved "gate_up" : !moe.tensor<R x 48 x bf16>
    %act = moe.saved "act" : !moe.tensor<R x 24 x bf16>
    // CHECK: %rows_dy, %row_weights = moe.dispatch "dispatch"(%dy, %routing) weights(%expert_weights)
    %rows_dy, %w = moe.dispatch "dispatch"(%dy, %routing) weights(%probs) {tensors = ["rows_dy", "row_weights"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing, !moe.tensor<T x 8 x f32>)
        -> (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x f32>)
    // CHECK-NEXT: moe.gmm "act_grad"(%rows_dy, %down_weight) transpose :
    %act_grad = moe.gmm "act_grad"(%rows_dy, %w_down) transpose
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<16 x 24 x 32 x bf16>) -> !moe.tensor<R x 24 x bf16>
    // CHECK-NEXT: moe.gmm_weight_grad "down_weight_grad"(%act, %rows_dy) scale(%row_weights) split <experts, 1> :
    %dw_down = moe.gmm_weight_grad "down_weight_grad"(%act, %rows_dy) scale(%w) split <experts, 1>
        : (!moe.tensor<R x 24 x bf16>, !moe.tensor<R x 32 x bf16>, !moe.tensor<R x f32>)
        -> !moe.tensor<16 x 24 x 32 x f32>
    // CHECK-NEXT: moe.activation_grad "swiglu_grad" swiglu_clamp(%{{.*}}, %gate_up) weights(%row_weights) limit 7.000000e+00 :
    %gate_up_grad, %dw = moe.activation_grad "swiglu_grad" swiglu_clamp(%act_grad, %gate_up) weights(%w) limit 7.0
        : (!moe.tensor<R x 24 x bf16>, !moe.tensor<R x 48 x bf16>, !moe.tensor<R x f32>)
        -> (!moe.tensor<R x 48 x bf16>, !moe.tensor<R x f32>)
    %rows_dx = moe.gmm "gate_grad"(%gate_up_grad, %w_up) transpose
        : (!moe.tensor<R x 48 x bf16>, !moe.tensor<16 x 32 x 48 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // CHECK: moe.combine "combine"(%{{.*}}, %routing) scalars(%{{.*}}) :
    %dx, %d_probs = moe.combine "combine"(%rows_dx, %routing) scalars(%dw)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<R x f32>)
        -> (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 8 x f32>)
    // CHECK-NEXT: moe.gmm_weight_grad "gate_up_weight_grad"(%rows_x, %{{.*}}) accumulate :
    %dw_up = moe.gmm_weight_grad "gate_up_weight_grad"(%rows_x, %gate_up_grad) accumulate
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 48 x bf16>) -> !moe.tensor<16 x 32 x 48 x f32>
    moe.output "dx", %dx : !moe.tensor<T x 32 x bf16>
    moe.output "d_expert_weights", %d_probs : !moe.tensor<T x 8 x f32>
    moe.output "gate_up_weight_grad", %dw_up : !moe.tensor<16 x 32 x 48 x f32>
    moe.output "down_weight_grad", %dw_down : !moe.tensor<16 x 24 x 32 x f32>
  }
}
