// Where matrix and vector cores are apart, products are for cube cores and all else is for vector cores.
// RUN: sluice-opt %s --pass-pipeline='builtin.module(propagate-splits,form-tasks{cube-cores=24 vector-cores=48})' | FileCheck %s

// A fused node has no core to run on.
// RUN: not sluice-opt %s --pass-pipeline='builtin.module(fuse,propagate-splits,form-tasks{cube-cores=24 vector-cores=48})' 2>&1 | FileCheck %s --check-prefix=FUSED
// FUSED: error: node 'up_act' is a product and vector work in one, but the cores that run these are apart: expected two nodes

// CHECK: task.program "g" {{.*}} cores = 0 cube = 24 vector = 48 target
// CHECK: task.family dispatch "dispatch" {{.*}} core vector
// CHECK: task.family gmm "up" {{.*}} core cube
// CHECK: task.family activation "act" {{.*}} core vector
// CHECK: task.family combine_return "combine.return" {{.*}} core vector
// CHECK: task.family combine_sum "combine.sum" {{.*}} core vector
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
