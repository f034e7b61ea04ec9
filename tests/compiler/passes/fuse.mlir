// A gmm and its activation become one node, and so do a gmm and the gradient of an activation; scales by powers of
// two become factors.
// RUN: sluice-opt %s --fuse --split-input-file | FileCheck %s
// RUN: sluice-opt %s --fuse="kinds=activation-grad,scale" --split-input-file | FileCheck %s --check-prefix=LIST
// RUN: sluice-opt %s --fuse="kinds=none" --split-input-file > %t.none
// RUN: sluice-opt %s --split-input-file > %t.plain
// RUN: cmp %t.none %t.plain

// CHECK-LABEL: @layer
// LIST-LABEL: @layer
moe.graph @layer ranks = 1 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<4 x 32 x 40 x bf16>
    %wd = moe.input "wd" : !moe.tensor<4 x 20 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // The product is kept for the backward pass.
    // CHECK: %act, %gate_up = moe.gmm_activation "up_proj_swiglu" swiglu(%{{.*}}, %w) split <rows, 64> {tensors = ["act", "gate_up"]}
    // CHECK-NOT: moe.activation
    // LIST: moe.gmm "up_proj"
    // LIST: moe.activation "swiglu"
    %up = moe.gmm "up_proj"(%rows, %w) {tensors = ["gate_up"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    %act = moe.activation "swiglu" swiglu(%up) split <rows, 64> {tensors = ["act"]}
        : (!moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 20 x bf16>
    %down = moe.gmm "down_proj"(%act, %wd)
        : (!moe.tensor<R x 20 x bf16>, !moe.tensor<4 x 20 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // CHECK: moe.combine
    %y = moe.combine "combine"(%down, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    // CHECK: moe.save "gate_up", %gate_up
    moe.save "gate_up", %up : !moe.tensor<R x 40 x bf16>
    moe.save "routing", %r : !moe.routing
  }
  moe.entry @backward after @forward {
    %dy = moe.input "dy" : !moe.tensor<T x 32 x bf16>
    %probs = moe.input "probs" : !moe.tensor<T x 2 x f32>
    %wd = moe.input "wd" : !moe.tensor<4 x 20 x 32 x bf16>
    %r = moe.saved "routing" : !moe.routing
    %gate_up = moe.saved "gate_up" : !moe.tensor<R x 40 x bf16>
    %rows, %weights = moe.dispatch "dispatch"(%dy, %r) weights(%probs)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>)
        -> (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x f32>)
    // CHECK: %gate_up_grad, %row_weight_grad = moe.gmm_activation_grad "act_grad_swiglu_grad" swiglu_clamp(%{{.*}}, %wd, %gate_up) weights(%{{.*}}) transpose limit 7.0{{.*}} {tensors = ["gate_up_grad", "row_weight_grad"]}
    // LIST: moe.gmm_activation_grad "act_grad_swiglu_grad"
    %act_grad = moe.gmm "act_grad"(%rows, %wd) transpose
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 20 x 32 x bf16>) -> !moe.tensor<R x 20 x bf16>
    %dgu, %dw = moe.activation_grad "swiglu_grad" swiglu_clamp(%act_grad, %gate_up) weights(%weights) limit 7.0
        {tensors = ["gate_up_grad", "row_weight_grad"]}
        : (!moe.tensor<R x 20 x bf16>, !moe.tensor<R x 40 x bf16>, !moe.tensor<R x f32>)
        -> (!moe.tensor<R x 40 x bf16>, !moe.tensor<R x f32>)
    %grad = moe.gmm_weight_grad "grad"(%rows, %dgu)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 40 x bf16>) -> !moe.tensor<4 x 32 x 40 x f32>
    %dx, %dp = moe.combine "combine"(%rows, %r) scalars(%dw)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<R x f32>)
        -> (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 2 x f32>)
    moe.output "dx", %dx : !moe.tensor<T x 32 x bf16>
    moe.output "dp", %dp : !moe.tensor<T x 2 x f32>
    moe.output "g", %grad : !moe.tensor<4 x 32 x 40 x f32>
  }
}

// -----

// No other node reads the product, so it is not a result; a name that is taken gets a number.
// CHECK-LABEL: @dense
moe.graph @dense ranks = 1 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<32 x 40 x bf16>
    %w2 = moe.input "w2" : !moe.tensor<20 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // CHECK: moe.gmm_activation "up_act_2" geglu({{.*}} : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 40 x bf16>) -> !moe.tensor<T x 20 x bf16>
    %up = moe.gmm "up"(%x, %w)
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 40 x bf16>) -> !moe.tensor<T x 40 x bf16>
    %act = moe.activation "act" geglu(%up)
        : (!moe.tensor<T x 40 x bf16>) -> !moe.tensor<T x 20 x bf16>
    // A factor of two is folded; three would round.
    // CHECK-NEXT: moe.gmm "up_act"({{.*}} alpha 2.0{{.*}} {tensors = ["twice"]}
    // CHECK-NEXT: moe.scale "three"({{.*}} by 3.0
    %y = moe.gmm "up_act"(%act, %w2) {tensors = ["y"]}
        : (!moe.tensor<T x 20 x bf16>, !moe.tensor<20 x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    %two = moe.scale "two"(%y) by 2.0 {tensors = ["twice"]} : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    %three = moe.scale "three"(%two) by 3.0 : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    moe.output "z", %three : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// A scale goes into all products that read it; nodes that are cut differently stay separate.
// CHECK-LABEL: @scales
moe.graph @scales ranks = 1 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %dy = moe.input "dy" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<32 x 40 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // CHECK-NOT: moe.scale
    %half = moe.scale "half"(%dy) by 0.5 : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    // CHECK: moe.gmm "up"(%dy, %w) alpha 5.0{{.*}} split <tokens, 8>
    %up = moe.gmm "up"(%half, %w) split <tokens, 8>
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 40 x bf16>) -> !moe.tensor<T x 40 x bf16>
    // CHECK: moe.activation "act"
    %act = moe.activation "act" geglu(%up) split <tokens, 16>
        : (!moe.tensor<T x 40 x bf16>) -> !moe.tensor<T x 20 x bf16>
    // CHECK: moe.gmm_weight_grad "grad"(%x, %dy) alpha -1.5
    %grad = moe.gmm_weight_grad "grad"(%x, %half) alpha -3.0
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 32 x bf16>) -> !moe.tensor<32 x 32 x f32>
    moe.output "a", %act : !moe.tensor<T x 20 x bf16>
    moe.output "g", %grad : !moe.tensor<32 x 32 x f32>
  }
}
