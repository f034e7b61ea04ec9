// If ranks own different numbers of experts, weights are buffers of extent E; the families are those of any layer.
// RUN: sluicec %s --target %S/small_target.json --tile 32 --fuse none --stop-after=cut-tasks | FileCheck %s

// CHECK: limits ranks 2 experts 5
// CHECK: buffer w : BF16 [E, 32, 48] input{{$}}
// CHECK: buffer up.0 : BF16 [R, 48] temp{{$}}
// CHECK: buffer dw : F32 [E, 32, 48] output{{$}}
// CHECK: family e/up : gmm over rows tiles 2
// CHECK: family e/dw : gmm_weight_grad over experts tiles 2
moe.graph @g ranks = 2 experts = 5 top_k = 2 max_tokens = 8 symbols {} {
  moe.entry @e {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<E x 32 x 48 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) split <rows, 16>
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up"(%rows, %w) split <rows, 16>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<E x 32 x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
    %dw = moe.gmm_weight_grad "dw"(%rows, %up) split <experts, 1>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 48 x bf16>) -> !moe.tensor<E x 32 x 48 x f32>
    moe.output "dw", %dw : !moe.tensor<E x 32 x 48 x f32>
  }
}
