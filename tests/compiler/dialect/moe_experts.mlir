// If ranks do not divide the experts, the first dimension of weights is the extent E, even at a rank that owns
// none.
// RUN: sluice-opt %s | FileCheck %s
// RUN: sluice-opt %s | sluice-opt | FileCheck %s
// RUN: sluice-opt %s --mlir-print-op-generic | sluice-opt | FileCheck %s

// CHECK: moe.graph @g ranks = 2 experts = 5 top_k = 2 max_tokens = 8 symbols {} {
moe.graph @g ranks = 2 experts = 5 top_k = 2 max_tokens = 8 symbols {} {
  moe.entry @e {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    // CHECK: moe.input "w" : !moe.tensor<E x 32 x 48 x bf16>
    %w = moe.input "w" : !moe.tensor<E x 32 x 48 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK: moe.gmm "up"(%{{.*}}, %w) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<E x 32 x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
    %up = moe.gmm "up"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<E x 32 x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
    // CHECK: moe.gmm_weight_grad "dw"
    // CHECK-SAME: -> !moe.tensor<E x 32 x 48 x f32>
    %dw = moe.gmm_weight_grad "dw"(%rows, %up)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 48 x bf16>) -> !moe.tensor<E x 32 x 48 x f32>
    moe.output "up", %up : !moe.tensor<R x 48 x bf16>
    moe.output "dw", %dw : !moe.tensor<E x 32 x 48 x f32>
  }
}

// CHECK: moe.graph @few ranks = 4 experts = 3 top_k = 1 max_tokens = 8 symbols {} {
moe.graph @few ranks = 4 experts = 3 top_k = 1 max_tokens = 8 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 1 x i32>
    %w = moe.input "w" : !moe.tensor<E x 32 x 48 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 1 x i32>) -> !moe.routing
  }
}
