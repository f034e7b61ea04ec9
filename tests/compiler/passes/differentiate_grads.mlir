// The type of derived weight gradients; those of tokens keep theirs.
// RUN: sluice-opt %s --differentiate=grads=BF16 | FileCheck %s
// RUN: sluice-opt %s --differentiate=grads=F32 | FileCheck %s --check-prefix=WIDE
// RUN: not sluice-opt %s --differentiate=grads=F16 2>&1 | FileCheck %s --check-prefix=WRONG

// CHECK: moe.gmm_weight_grad {{.*}} -> !moe.tensor<2 x 32 x 16 x bf16>
// CHECK: moe.output "weight_grad", {{.*}} : !moe.tensor<2 x 32 x 16 x bf16>
// WIDE: moe.output "weight_grad", {{.*}} : !moe.tensor<2 x 32 x 16 x f32>
// WRONG: error: cannot derive weight gradients of type 'F16', expected F32 or BF16

moe.graph @layer ranks = 2 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weight = moe.input "weight" : !moe.tensor<2 x 32 x 16 x bf16>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %routing) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %out = moe.gmm "proj"(%rows, %weight) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 16 x bf16>) -> !moe.tensor<R x 16 x bf16>
    %y = moe.combine "combine"(%out, %routing) : (!moe.tensor<R x 16 x bf16>, !moe.routing) -> !moe.tensor<T x 16 x bf16>
    moe.output "y", %y : !moe.tensor<T x 16 x bf16>
  }
}
