// A gmm with a bias takes the activation after it with its bias; a gradient of an activation or a factor does not go into
// it, because the bias is added before.
// RUN: sluice-opt %s --fuse | FileCheck %s

// CHECK: moe.graph @layer
moe.graph @layer ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 40 x bf16>
    %b = moe.input "b" : !moe.tensor<2 x 40 x bf16>
    %wd = moe.input "wd" : !moe.tensor<2 x 20 x 20 x bf16>
    %bd = moe.input "bd" : !moe.tensor<2 x 20 x bf16>
    %r = moe.route "route" {tensors = ["routing"]} : () -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK: %act, %gate_up = moe.gmm_activation "up_act" swiglu(%rows, %w) bias(%b) alpha 5.000000e-01 {tensors = ["act", "gate_up"]}
    // CHECK-NOT: moe.activation "act"
    %half = moe.scale "half"(%rows) by 0.5 {tensors = ["half"]}
        : (!moe.tensor<R x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up"(%half, %w) bias(%b) {tensors = ["gate_up"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 40 x bf16>, !moe.tensor<2 x 40 x bf16>)
        -> !moe.tensor<R x 40 x bf16>
    %act = moe.activation "act" swiglu(%up) {tensors = ["act"]}
        : (!moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 20 x bf16>
    // CHECK: %down = moe.gmm "down"(%act, %wd) bias(%bd) {tensors = ["down"]}
    // CHECK-NEXT: %twice = moe.scale "twice"(%down) by 2.000000e+00
    %down = moe.gmm "down"(%act, %wd) bias(%bd) {tensors = ["down"]}
        : (!moe.tensor<R x 20 x bf16>, !moe.tensor<2 x 20 x 20 x bf16>, !moe.tensor<2 x 20 x bf16>)
        -> !moe.tensor<R x 20 x bf16>
    %twice = moe.scale "twice"(%down) by 2.0 {tensors = ["twice"]}
        : (!moe.tensor<R x 20 x bf16>) -> !moe.tensor<R x 20 x bf16>
    // CHECK: moe.gmm "again"
    // CHECK-NEXT: moe.activation_grad "grad"
    %again = moe.gmm "again"(%twice, %wd) bias(%bd) {tensors = ["again"]}
        : (!moe.tensor<R x 20 x bf16>, !moe.tensor<2 x 20 x 20 x bf16>, !moe.tensor<2 x 20 x bf16>)
        -> !moe.tensor<R x 20 x bf16>
    %grad = moe.activation_grad "grad" swiglu(%again, %up) {tensors = ["grad"]}
        : (!moe.tensor<R x 20 x bf16>, !moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    // A sum is no product: it does not take the factor.
    // CHECK: moe.scale "quarter"
    // CHECK-NEXT: moe.column_sum "sums"(%quarter)
    %quarter = moe.scale "quarter"(%grad) by 0.25 {tensors = ["quarter"]}
        : (!moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    %sums = moe.column_sum "sums"(%quarter) {tensors = ["sums"]}
        : (!moe.tensor<R x 40 x bf16>) -> !moe.tensor<2 x 40 x f32>
    moe.output "sums", %sums : !moe.tensor<2 x 40 x f32>
    moe.output "twice", %twice : !moe.tensor<R x 20 x bf16>
  }
}
