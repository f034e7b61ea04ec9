// Weight gradients as an entry of their own: it has the nodes that only they need, and `backward` saves what these read.
// RUN: sluice-opt %s --differentiate --weight-rows --delay-weight-grads | FileCheck %s
// RUN: sluice-opt %s --differentiate=trainable=gate_up_weight,down_weight --weight-rows --delay-weight-grads | FileCheck %s --check-prefix=WEIGHTS
// RUN: sluice-opt %s --differentiate=keep=regather --weight-rows --delay-weight-grads | FileCheck %s --check-prefix=REGATHER
// RUN: sluice-opt %s --differentiate=accumulate --weight-rows --delay-weight-grads | FileCheck %s --check-prefix=ADDED
// RUN: sluice-opt %s --round-products --differentiate --weight-rows --encode-kept --delay-weight-grads | FileCheck %s --check-prefix=CODES
// RUN: sluice-opt %s --round-products=encode=fp8e4m3 --differentiate --weight-rows --scale-factors --delay-weight-grads | FileCheck %s --check-prefix=AMAX
// RUN: sluice-opt %s --round-products=encode=fp8e4m3 --differentiate --weight-rows --scale-factors=outputs --delay-weight-grads | FileCheck %s --check-prefix=OUTPUTS
// RUN: sluice-opt %s --round-products=encode=fp8e4m3 --differentiate --weight-rows --scale-factors=delayed --delay-weight-grads | FileCheck %s --check-prefix=GIVEN
// RUN: not sluice-opt %s --differentiate=trainable=x --delay-weight-grads 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not sluice-opt %s --delay-weight-grads 2>&1 | FileCheck %s --check-prefix=FORWARD
// RUN: not sluice-opt %s --differentiate --delay-weight-grads --delay-weight-grads 2>&1 | FileCheck %s --check-prefix=TWICE

// CHECK: moe.entry @forward
// CHECK: moe.save "rows_x"
// CHECK: moe.entry @backward after @forward
// CHECK-NOT: moe.saved "rows_x"
// CHECK: moe.dispatch
// CHECK-NOT: moe.gmm_weight_grad
// CHECK: moe.output "dx"
// CHECK-NEXT: moe.output "d_expert_weights"
// CHECK-NEXT: moe.save "rows_dy"
// CHECK-NEXT: moe.save "gate_up_grad"
// CHECK-NEXT: moe.save "act_weighted"
// CHECK-NEXT: }
// CHECK-NEXT: moe.entry @weight_grads after @backward {
// CHECK-NEXT: %rows_x = moe.saved "rows_x"
// CHECK-NEXT: moe.saved "routing"
// CHECK-NEXT: %rows_dy = moe.saved "rows_dy"
// CHECK-NEXT: %gate_up_grad = moe.saved "gate_up_grad"
// CHECK-NEXT: %act_weighted = moe.saved "act_weighted"
// CHECK-NEXT: moe.gmm_weight_grad "down_weight_grad"(%act_weighted, %rows_dy) {
// CHECK-NEXT: moe.gmm_weight_grad "gate_up_weight_grad"(%rows_x, %gate_up_grad) {
// CHECK-NEXT: moe.output "gate_up_weight_grad"
// CHECK-NEXT: moe.output "down_weight_grad"
// CHECK-NEXT: }

// Only weights are trained: rows are still sent in `backward`, which waits for them by copying them, and the products are
// the new entry's.
// WEIGHTS: moe.entry @backward after @forward
// WEIGHTS-NOT: moe.input "down_weight"
// WEIGHTS: %rows_dy, %row_weights = moe.dispatch
// WEIGHTS-NEXT: %rows_dy_kept = moe.scale "rows_dy_kept"(%rows_dy) by 1.000000e+00
// WEIGHTS-NEXT: moe.save "row_weights"
// WEIGHTS-NEXT: moe.save "rows_dy_kept"
// WEIGHTS-NEXT: }
// WEIGHTS-NEXT: moe.entry @weight_grads after @backward {
// WEIGHTS-NEXT: moe.input "down_weight"
// WEIGHTS: moe.gmm "act_grad"
// WEIGHTS: moe.activation_grad
// WEIGHTS: moe.output "down_weight_grad"

// Rows that are dispatched again are sent in `backward`, too.
// REGATHER: moe.entry @backward
// REGATHER: moe.dispatch "rows_x_again"
// REGATHER: moe.save "rows_x_again_kept"
// REGATHER: moe.entry @weight_grads
// REGATHER-NOT: moe.dispatch
// REGATHER: moe.gmm_weight_grad "gate_up_weight_grad"(%rows_x_again_kept, %gate_up_grad)

// ADDED: moe.entry @weight_grads
// ADDED: moe.gmm_weight_grad "down_weight_grad"(%act_weighted, %rows_dy) accumulate
// ADDED: moe.gmm_weight_grad "gate_up_weight_grad"(%rows_x, %gate_up_grad) accumulate

// What `forward` keeps as codes stays so.
// CODES: moe.entry @weight_grads
// CODES: %rows_x_codes = moe.saved "rows_x_codes"
// CODES: moe.gmm_weight_grad "gate_up_weight_grad"(%rows_x_codes, %gate_up_grad)

// An amax that products of `backward` need is kept; another one is measured where it is needed.
// AMAX: moe.entry @backward
// AMAX: moe.amax "gate_up_grad_amax"
// AMAX: moe.save "gate_up_grad_amax"
// AMAX: moe.entry @weight_grads
// AMAX: moe.saved "gate_up_grad_amax"
// AMAX: moe.amax "rows_x_amax

// An output is not kept, too.
// OUTPUTS: moe.entry @backward
// OUTPUTS: moe.output "gate_up_grad_amax"
// OUTPUTS-NOT: moe.save "gate_up_grad_amax"
// OUTPUTS: moe.entry @weight_grads
// OUTPUTS: moe.amax "gate_up_grad_amax_again"(%gate_up_grad)

// GIVEN: moe.entry @backward
// GIVEN: moe.output "gate_up_grad_amax"
// GIVEN: moe.entry @weight_grads
// GIVEN: moe.input "gate_up_grad_amax_used"

// NONE: error: entry 'backward' gives no weight gradient, expected some that can be delayed
// FORWARD: error: graph 'layer' has no entry 'backward', expected one whose weight gradients can be delayed
// TWICE: error: entry 'weight_grads' has the name of the entry for delayed gradients

moe.graph @layer ranks = 2 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %wu = moe.input "gate_up_weight" : !moe.tensor<2 x 32 x 64 x bf16>
    %wd = moe.input "down_weight" : !moe.tensor<2 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) {tensors = ["routing"]} : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows_x"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up_proj"(%rows, %wu) {tensors = ["gate_up"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 64 x bf16>) -> !moe.tensor<R x 64 x bf16>
    %act = moe.activation "swiglu" swiglu(%up) {tensors = ["act"]}
        : (!moe.tensor<R x 64 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %down = moe.gmm "down_proj"(%act, %wd) {tensors = ["down_out"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%down, %r) weights(%weights) {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}
