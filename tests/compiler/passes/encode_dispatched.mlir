// Tokens are encoded once before they are sent; products read the codes that arrive, and what is kept is made of them.
// RUN: sluice-opt %s --round-products --differentiate --encode-kept --encode-dispatched | FileCheck %s

// CHECK: %x_codes, %x_scales = moe.encode "x_encode" mx_e4m3(%x)
// CHECK-SAME: -> (!moe.tensor<T x 32 x f8E4M3FN>, !moe.tensor<T x 1 x bf16>)
// CHECK: %rows_sent, %rows_sent_scales = moe.dispatch_codes "dispatch"(%x_codes, %x_scales, %0)
// CHECK: moe.gmm "up"(%rows_sent, %w) row_scale(%rows_sent_scales)
// CHECK: moe.encode "rows_encode" mx_e4m3(%rows_sent) scale(%rows_sent_scales)
// CHECK-SAME: -> (!moe.tensor<R x 32 x f8E4M3FN>, !moe.tensor<R x 1 x bf16>, !moe.tensor<4 x 32 x bf16>)
// CHECK: moe.entry @backward
// Gradients are sent as they are.
// CHECK: moe.dispatch "dispatch"(%dy, %route)
// CHECK: moe.gmm_weight_grad "w_grad"(%rows_codes, %up_grad) codes_of(%rows_scales, %rows_end_scales)
moe.graph @layer ranks = 1 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %p = moe.input "p" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<4 x 32 x 64 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up"(%rows, %w) {tensors = ["up"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 64 x bf16>) -> !moe.tensor<R x 64 x bf16>
    %act = moe.activation "swiglu" swiglu(%up) {tensors = ["act"]} : (!moe.tensor<R x 64 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%act, %r) weights(%p) {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}
