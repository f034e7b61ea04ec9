// Rows that are kept for weight gradients only become codes; what has other readers, or is scaled, stays bf16.
// RUN: sluice-opt %s --round-products --differentiate --encode-kept | FileCheck %s
// RUN: sluice-opt %s --round-products --differentiate --encode-kept --encode-kept | FileCheck %s
// RUN: sluice-opt %s --differentiate --encode-kept | FileCheck %s --check-prefix=BF16
// RUN: sluice-opt %s --round-products=encode=fp8e4m3 --differentiate --scale-factors --encode-kept | FileCheck %s --check-prefix=AMAX
// RUN: sluice-opt %s --round-products=encode=fp8e4m3 --differentiate --scale-factors=delayed --encode-kept | FileCheck %s --check-prefix=GIVEN
// RUN: sluice-opt %s --round-products --differentiate=keep=minimal --encode-kept | FileCheck %s --check-prefix=MINIMAL

// The nodes come after the last one that reads their rows.
// CHECK: moe.gmm "up"(%rows, %w)
// CHECK-NEXT: %rows_codes, %rows_scales, %rows_end_scales = moe.encode "rows_encode" mx_e4m3(%rows) {tensors = ["rows_codes", "rows_scales", "rows_end_scales"]} : (!moe.tensor<R x 32 x bf16>) -> (!moe.tensor<R x 32 x f8E4M3FN>, !moe.tensor<R x 1 x bf16>, !moe.tensor<4 x 32 x bf16>)
// CHECK: moe.gmm "down"(%act, %wt) transpose
// CHECK-NEXT: moe.encode "act_encode" mx_e4m3(%act)
// CHECK-NOT: moe.save "rows",
// CHECK-NOT: moe.save "act",
// CHECK-DAG: moe.save "up", %up
// CHECK-DAG: moe.save "rows_codes", %rows_codes
// CHECK-DAG: moe.save "act_end_scales", %act_end_scales
// CHECK: moe.entry @backward
// The gradient has the weight of the row, as a or as b.
// CHECK: moe.gmm_weight_grad "wt_grad"(%rows_dy, %act_codes) scale(%row_weights) codes_of(%act_scales, %act_end_scales) scale_a
// CHECK: moe.gmm_weight_grad "w_grad"(%rows_codes, %up_grad) codes_of(%rows_scales, %rows_end_scales)

// By an amax codes have no scales; one that is measured is kept with them, one that is given is an input of both entries.
// AMAX: %rows_codes = moe.encode "rows_encode" e4m3(%rows) amax(%rows_amax) {tensors = ["rows_codes"]} : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 1 x f32>) -> !moe.tensor<R x 32 x f8E4M3FN>
// AMAX: moe.save "rows_codes", %rows_codes
// AMAX-NEXT: moe.save "rows_amax", %rows_amax
// AMAX: moe.save "act_amax", %act_amax
// AMAX: moe.entry @backward
// AMAX-NOT: moe.amax "rows_amax"
// AMAX: moe.gmm_weight_grad "wt_grad"(%rows_dy, %act_codes) scale(%row_weights) a_amax(%rows_dy_amax) b_amax(%act_amax) scale_a
// AMAX: moe.gmm_weight_grad "w_grad"(%rows_codes, %up_grad) a_amax(%rows_amax)
// GIVEN: moe.encode "act_encode" e4m3(%act) amax(%act_amax_used)
// GIVEN-NOT: moe.save "act_amax"
// GIVEN: moe.entry @backward
// GIVEN: moe.gmm_weight_grad "wt_grad"(%rows_dy, %act_codes) scale(%row_weights) a_amax(%rows_dy_amax_used) b_amax(%act_amax_used) scale_a

// BF16-NOT: moe.encode
// BF16: moe.save "act", %act

// Activations that are computed again are not kept.
// MINIMAL-NOT: moe.encode "act_encode"
// MINIMAL: moe.encode "rows_encode"
// MINIMAL-NOT: moe.encode "act_encode"
moe.graph @layer ranks = 1 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %p = moe.input "p" : !moe.tensor<T x 2 x f32>
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
    %y = moe.combine "combine"(%down, %r) weights(%p) {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}
