// Rows that something reads as bf16 are not sent as codes.
// RUN: sluice-opt %s --round-products --encode-dispatched --verify-diagnostics
moe.graph @layer ranks = 1 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %p = moe.input "p" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<4 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-error@+1 {{node 'dispatch' cannot send codes: node 'both' reads 'rows' as bf16}}
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up"(%rows, %w) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %both = moe.add "both"(%up, %rows) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%both, %r) weights(%p) {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}
