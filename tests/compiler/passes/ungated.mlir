// An activation without a gate, from its forward to the tasks: the product before it has the columns of its result, its
// gradient has those of the product, fused or not, and a shard of both is `columns`.
// RUN: sluice-opt %s --differentiate | FileCheck %s --check-prefix=DERIVED
// RUN: sluice-opt %s --differentiate --weight-rows --fuse | FileCheck %s --check-prefix=FUSED
// RUN: sluicec %s --target %S/small_target.json --trainable all --tile 16 --stop-after=cut-tasks | FileCheck %s --check-prefix=TASKS
// RUN: sluicec %s --target %S/small_target.json --trainable all --fuse none -o %t.slp
// RUN: sluice verify %t.slp

// DERIVED: moe.activation_grad "relu2_grad" relu2(%{{.*}}, %up) weights(%row_weights) {{.*}}(!moe.tensor<R x 24 x bf16>, !moe.tensor<R x 24 x bf16>, !moe.tensor<R x f32>) -> (!moe.tensor<R x 24 x bf16>, !moe.tensor<R x f32>)
// DERIVED: moe.gmm_weight_grad "w_grad"{{.*}} -> !moe.tensor<2 x 32 x 24 x f32>

// FUSED: moe.gmm_activation "up_relu2" relu2(%{{.*}}, %w) bias(%b) {{.*}} -> (!moe.tensor<R x 24 x bf16>, !moe.tensor<R x 24 x bf16>)
// FUSED: moe.gmm_activation_grad "act_grad_relu2_grad" relu2({{.*}}) {{.*}} gives_act {{.*}} -> (!moe.tensor<R x 24 x bf16>, !moe.tensor<R x f32>, !moe.tensor<R x 24 x bf16>)

// A tile of 16 columns is 16 of the weight; that of a gated activation is 8 of each of its inputs.
// TASKS-DAG: buffer w : BF16 [2, 32, 24] input shard columns
// TASKS-DAG: buffer up : BF16 [R, 24] saved shard columns
// TASKS-DAG: buffer act_weighted : BF16 [R, 24] temp shard columns
// TASKS-DAG: buffer w_grad : F32 [2, 32, 24] output shard columns
// TASKS-DAG: buffer b_grad : F32 [2, 24] output shard columns
// TASKS: family forward/up_relu2 : gmm_activation over rows tiles 2
// TASKS: tiling n=24 k=32 tile_n=16 activation=relu2
// TASKS: family backward/act_grad_relu2_grad : gmm_activation_grad over rows tiles 1
// TASKS: tiling n=24 k=32 tile_n=24 flags=4 activation=relu2
moe.graph @ungated ranks = 2 tp = 2 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %weights = moe.input "expert_weights" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" shard columns : !moe.tensor<2 x 32 x 24 x bf16>
    %b = moe.input "b" shard columns : !moe.tensor<2 x 24 x bf16>
    %wd = moe.input "wd" shard rows : !moe.tensor<2 x 24 x 32 x bf16>
    %r = moe.route "route"(%ids) {tensors = ["routing"]} : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows_x"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %up = moe.gmm "up"(%rows, %w) bias(%b) {tensors = ["up"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 24 x bf16>, !moe.tensor<2 x 24 x bf16>)
        -> !moe.tensor<R x 24 x bf16>
    %act = moe.activation "relu2" relu2(%up) {tensors = ["act"]}
        : (!moe.tensor<R x 24 x bf16>) -> !moe.tensor<R x 24 x bf16>
    %down = moe.gmm "down"(%act, %wd) {tensors = ["down_out"]}
        : (!moe.tensor<R x 24 x bf16>, !moe.tensor<2 x 24 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%down, %r) weights(%weights) {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}
