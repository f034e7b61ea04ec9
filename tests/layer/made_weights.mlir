// A layer whose second weight is made in the step: of each expert the sum of outer products of its rows.
moe.graph @made_weights ranks = 3 experts = 5 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @run {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %up = moe.input "up" : !moe.tensor<E x 32 x 64 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %product = moe.gmm "product"(%rows, %up)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<E x 32 x 64 x bf16>) -> !moe.tensor<R x 64 x bf16>
    %made = moe.gmm_weight_grad "made"(%product, %rows) alpha 0.0625
        : (!moe.tensor<R x 64 x bf16>, !moe.tensor<R x 32 x bf16>) -> !moe.tensor<E x 64 x 32 x bf16>
    %out = moe.gmm "again"(%product, %made)
        : (!moe.tensor<R x 64 x bf16>, !moe.tensor<E x 64 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%out, %r) : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}
