// If matrix and vector cores are separate, products are for cube cores and everything else is for vector cores.
// RUN: sluicec %s --target ascend910b --stop-after=form-tasks | FileCheck %s

// A fused node has no core to run on.
// RUN: sluice-opt %s --fuse --mlir-print-debuginfo -o %t.mlir
// RUN: not sluicec %t.mlir --target ascend910b --stop-after=form-tasks 2>&1 | FileCheck %s --check-prefix=FUSED
// FUSED: {{form_tasks_separate.*}}:{{[0-9]+}}:{{[0-9]+}}: error: node 'up_act' is a product and vector work in one, but the cores that run these are apart: expected two nodes

// CHECK: limits {{.*}} cores 0 cube 24 vector 48
// CHECK: family forward/dispatch : dispatch {{.*}} on vector
// CHECK: family forward/up : gmm {{.*}} on cube
// CHECK: family forward/act : activation {{.*}} on vector
// CHECK: family forward/combine.return : combine_return {{.*}} on vector
// CHECK: family forward/combine.sum : combine_sum {{.*}} on vector
moe.graph @g ranks = 2 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %probs = moe.input "probs" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 40 x bf16>
    %wd = moe.input "wd" : !moe.tensor<2 x 20 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    %act = moe.activation "act" swiglu(%up)
        : (!moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 20 x bf16>
    %down = moe.gmm "down"(%act, %wd)
        : (!moe.tensor<R x 20 x bf16>, !moe.tensor<2 x 20 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%down, %r) weights(%probs)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}
