// Nodes on tokens, factors, sums, and the fused nodes: the printed text parses to the same IR.
// RUN: sluice-opt %s | FileCheck %s
// RUN: sluice-opt %s | sluice-opt | FileCheck %s
// RUN: sluice-opt %s --mlir-print-op-generic | sluice-opt | FileCheck %s

// CHECK: moe.graph @dense
moe.graph @dense ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 48 x bf16>
    %dense = moe.input "dense" : !moe.tensor<32 x 48 x bf16>
    %dense_t = moe.input "dense_t" : !moe.tensor<32 x 24 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK: moe.gmm "scaled"(%{{.*}}, %w) alpha 5.000000e-01 split <rows, 32> : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
    %scaled = moe.gmm "scaled"(%rows, %w) alpha 0.5 split <rows, 32>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
    // CHECK-NEXT: %gate_up = moe.gmm "dense_up"(%x, %dense) split <tokens, 16> {tensors = ["gate_up"]} : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x bf16>) -> !moe.tensor<T x 48 x bf16>
    %gate_up = moe.gmm "dense_up"(%x, %dense) split <tokens, 16> {tensors = ["gate_up"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x bf16>) -> !moe.tensor<T x 48 x bf16>
    // CHECK-NEXT: %act = moe.activation "act" geglu(%gate_up) {tensors = ["act"]} : (!moe.tensor<T x 48 x bf16>) -> !moe.tensor<T x 24 x bf16>
    %act = moe.activation "act" geglu(%gate_up) {tensors = ["act"]}
        : (!moe.tensor<T x 48 x bf16>) -> !moe.tensor<T x 24 x bf16>
    // CHECK-NEXT: moe.gmm "dense_down"(%act, %dense_t) transpose alpha -2.000000e+00 : (!moe.tensor<T x 24 x bf16>, !moe.tensor<32 x 24 x bf16>) -> !moe.tensor<T x 32 x bf16>
    %down = moe.gmm "dense_down"(%act, %dense_t) transpose alpha -2.0
        : (!moe.tensor<T x 24 x bf16>, !moe.tensor<32 x 24 x bf16>) -> !moe.tensor<T x 32 x bf16>
    // CHECK-NEXT: moe.activation_grad "act_grad" geglu(%act, %gate_up) : (!moe.tensor<T x 24 x bf16>, !moe.tensor<T x 48 x bf16>) -> !moe.tensor<T x 48 x bf16>
    %grad = moe.activation_grad "act_grad" geglu(%act, %gate_up)
        : (!moe.tensor<T x 24 x bf16>, !moe.tensor<T x 48 x bf16>) -> !moe.tensor<T x 48 x bf16>
    // CHECK-NEXT: moe.gmm_weight_grad "dense_weight_grad"(%x, %{{.*}}) alpha 2.000000e+00 accumulate : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 48 x bf16>) -> !moe.tensor<32 x 48 x bf16>
    %dw = moe.gmm_weight_grad "dense_weight_grad"(%x, %grad) alpha 2.0 accumulate
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 48 x bf16>) -> !moe.tensor<32 x 48 x bf16>
    // CHECK-NEXT: moe.gmm_weight_grad "weight_grad"(%{{.*}}, %{{.*}}) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 48 x bf16>) -> !moe.tensor<2 x 32 x 48 x bf16>
    %dwe = moe.gmm_weight_grad "weight_grad"(%rows, %scaled)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 48 x bf16>) -> !moe.tensor<2 x 32 x 48 x bf16>
    // CHECK-NEXT: %y = moe.add "sum"(%x, %{{.*}}) {tensors = ["y"]} : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    %y = moe.add "sum"(%x, %down) {tensors = ["y"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    // CHECK-NEXT: %half = moe.scale "half"(%{{.*}}) by 5.000000e-01 split <rows, 32> {tensors = ["half"]} : (!moe.tensor<R x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
    %half = moe.scale "half"(%scaled) by 0.5 split <rows, 32> {tensors = ["half"]}
        : (!moe.tensor<R x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
    // CHECK-NEXT: %act1 = moe.gmm_activation "up_act" swiglu(%{{.*}}, %w) {tensors = ["act1"]} : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>) -> !moe.tensor<R x 24 x bf16>
    %act1 = moe.gmm_activation "up_act" swiglu(%rows, %w) {tensors = ["act1"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>) -> !moe.tensor<R x 24 x bf16>
    // CHECK-NEXT: %act2, %kept = moe.gmm_activation "dense_up_act" swiglu_clamp(%{{.*}}, %dense) alpha 5.000000e-01 limit 7.000000e+00 {tensors = ["act2", "kept"]} : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x bf16>) -> (!moe.tensor<T x 24 x bf16>, !moe.tensor<T x 48 x bf16>)
    %act2, %kept = moe.gmm_activation "dense_up_act" swiglu_clamp(%x, %dense) alpha 0.5 limit 7.0 {tensors = ["act2", "kept"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x bf16>) -> (!moe.tensor<T x 24 x bf16>, !moe.tensor<T x 48 x bf16>)
    // CHECK-NEXT: moe.gmm_activation_grad "down_grad" swiglu_clamp(%x, %dense_t, %gate_up) alpha 5.000000e-01 limit 7.000000e+00 : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 24 x bf16>, !moe.tensor<T x 48 x bf16>) -> !moe.tensor<T x 48 x bf16>
    %g = moe.gmm_activation_grad "down_grad" swiglu_clamp(%x, %dense_t, %gate_up) alpha 0.5 limit 7.0
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 24 x bf16>, !moe.tensor<T x 48 x bf16>) -> !moe.tensor<T x 48 x bf16>
    // CHECK-NEXT: moe.output "y", %y
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    moe.output "dw", %dw : !moe.tensor<32 x 48 x bf16>
  }
  moe.entry @backward after @forward {
    %r = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %dy = moe.input "dy" : !moe.tensor<T x 32 x bf16>
    %weights = moe.input "weights" : !moe.tensor<T x 2 x f32>
    %wd = moe.input "wd" : !moe.tensor<2 x 24 x 32 x bf16>
    %rows_gate_up = moe.input "rows_gate_up" : !moe.tensor<R x 48 x bf16>
    %routing = moe.route "route"(%r) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows, %w = moe.dispatch "dispatch"(%dy, %routing) weights(%weights)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x f32>)
    // CHECK: moe.gmm_activation_grad "grad" reglu(%{{.*}}, %wd, %rows_gate_up) weights(%{{.*}}) transpose : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 24 x 32 x bf16>, !moe.tensor<R x 48 x bf16>, !moe.tensor<R x f32>) -> (!moe.tensor<R x 48 x bf16>, !moe.tensor<R x f32>)
    %grad, %dot = moe.gmm_activation_grad "grad" reglu(%rows, %wd, %rows_gate_up) weights(%w) transpose
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 24 x 32 x bf16>, !moe.tensor<R x 48 x bf16>, !moe.tensor<R x f32>) -> (!moe.tensor<R x 48 x bf16>, !moe.tensor<R x f32>)
  }
}
