// What the first entry saves: the activation too, or only the tensors from which it can be recomputed.
// RUN: sluice-opt %s --differentiate=keep=all | FileCheck %s --check-prefix=ALL
// RUN: sluice-opt %s --differentiate=keep=minimal | FileCheck %s
// RUN: sluice-opt %s --differentiate="keep=minimal trainable=down_weight" | FileCheck %s --check-prefix=DOWN
// RUN: sluice-opt %s --differentiate="keep=minimal trainable=x" | FileCheck %s --check-prefix=X
// RUN: not sluice-opt %s --differentiate=keep=nothing 2>&1 | FileCheck %s --check-prefix=WRONG

// ALL: moe.save "act"
// ALL-NOT: again

// The activation is recomputed before the first node that reads it, without attributes that concern only the
// forward.
// CHECK: moe.entry @forward
// CHECK-NOT: moe.save "act"
// CHECK: moe.save "gate_up"
// CHECK-NOT: moe.save "act"
// CHECK: moe.entry @backward
// CHECK-NOT: moe.saved "act"
// CHECK: moe.gmm "act_grad"
// CHECK-NEXT: %act_again = moe.activation "act_again" swiglu_clamp(%gate_up) limit 7.000000e+00 {tensors = ["act_again"]} :
// CHECK-NEXT: moe.gmm_weight_grad "down_weight_grad"(%act_again, %rows_dy) scale(%row_weights)
// CHECK-NEXT: moe.activation_grad "swiglu_grad" swiglu_clamp(%{{.*}}, %gate_up)

// Nothing else keeps gate_up, which is larger than the activation: so the activation stays saved.
// DOWN: moe.output "y"
// DOWN-NEXT: moe.save "act"
// DOWN-NEXT: moe.save "routing"
// DOWN-NOT: again

// No node reads the activation.
// X: moe.entry @backward
// X-NOT: again

// WRONG: error: cannot keep 'nothing', expected all, minimal or regather

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
    %act = moe.activation "swiglu" swiglu_clamp(%up) limit 7.0 {tensors = ["act"]}
        : (!moe.tensor<R x 48 x bf16>) -> !moe.tensor<R x 24 x bf16>
    %down = moe.gmm "down_proj"(%act, %wd) {tensors = ["down_out"]}
        : (!moe.tensor<R x 24 x bf16>, !moe.tensor<2 x 24 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%down, %r) weights(%weights) {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}
