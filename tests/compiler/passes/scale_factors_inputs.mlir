// Rows that are an input of both entries: with amaxes of the caller, the first entry alone says that of this step.
// RUN: sluice-opt %s --round-products=encode=fp8e4m3 --differentiate --scale-factors=delayed | FileCheck %s
// RUN: sluice-opt %s --round-products=encode=fp8e4m3 --differentiate --scale-factors | FileCheck %s --check-prefix=CURRENT

// CHECK: %x_amax_used = moe.input "x_amax_used"
// CHECK: moe.amax "x_amax"(%x)
// CHECK: moe.output "x_amax"
// CHECK: moe.entry @backward
// CHECK-NOT: moe.amax "x_amax
// CHECK: moe.gmm_weight_grad "weight_grad"(%{{.*}}, %x) a_amax(%{{.*}}) b_amax(%x_amax_used)
// CHECK-NOT: moe.output "x_amax

// CURRENT: moe.entry @backward
// CURRENT: %[[AGAIN:.*]] = moe.amax "x_amax{{.*}}"(%x)
// CURRENT: moe.gmm_weight_grad "weight_grad"(%{{.*}}, %x) a_amax(%{{.*}}) b_amax(%[[AGAIN]])
moe.graph @row ranks = 2 tp = 2 experts = 1 top_k = 1 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" shard columns : !moe.tensor<R x 32 x bf16>
    %w = moe.input "weight" shard columns : !moe.tensor<1 x 24 x 32 x bf16>
    %r = moe.route "route" : () -> !moe.routing
    %rows = moe.gmm "linear"(%x, %w) transpose {tensors = ["rows_y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<1 x 24 x 32 x bf16>) -> !moe.tensor<R x 24 x bf16>
    %y = moe.combine "scatter"(%rows, %r) {tensors = ["y"]}
        : (!moe.tensor<R x 24 x bf16>, !moe.routing) -> !moe.tensor<T x 24 x bf16>
    moe.output "y", %y : !moe.tensor<T x 24 x bf16>
  }
}
