// Rows of gradients become codes after their columns are multiplied by the scales of a weight, which lie along the sum.
// RUN: sluice-opt %s --quantize-rows="gradients" | FileCheck %s
// RUN: sluice-opt %s --quantize-rows="gradients rows=false" | FileCheck %s --check-prefix=ONLY
// RUN: sluice-opt %s --fuse --quantize-rows="gradients" | FileCheck %s --check-prefix=FUSED
// RUN: sluice-opt %s --quantize-rows="gradients" | sluice-opt | FileCheck %s
// RUN: sed 's/4 x 32 x 1 x f32/4 x 16 x 1 x f32/' %s > %t.blocks.mlir
// RUN: not sluice-opt %t.blocks.mlir --quantize-rows="gradients" 2>&1 | FileCheck %s --check-prefix=BLOCKS
// BLOCKS: error: node 'act_grad' has a gradient as rows, which would become codes, and scale 'down_scale' [4 x 16 x 1 x f32] of weight 'down' [4 x 32 x 40 x i8], expected one number for each of the 32 numbers along the sum: codes without groups, or grads=bf16
// RUN: sed '/^  moe.entry @backward/,/^  }/d' %s > %t.forward.mlir
// RUN: not sluice-opt %t.forward.mlir --quantize-rows="gradients" 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: error: graph 'layer' has no entry after another, expected one for grads=int8, as --trainable derives it

// CHECK-LABEL: @layer
// ONLY-LABEL: @layer
// FUSED-LABEL: @layer
moe.graph @layer ranks = 1 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %up = moe.input "up" : !moe.tensor<4 x 32 x 80 x i8>
    %up_scale = moe.input "up_scale" : !moe.tensor<4 x 1 x 80 x f32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK: moe.quantize "x_quantize"(%x) {{{.*}}} : (!moe.tensor<T x 32 x bf16>)
    // CHECK: %rows_codes, %rows_row_scale = moe.dispatch_codes "dispatch"(%x_codes, %x_row_scale, %{{.*}})
    // CHECK: moe.gmm "up_proj"(%rows_codes, %up) row_scale(%rows_row_scale) weight_scale(%up_scale)
    // ONLY-NOT: moe.quantize
    // ONLY: moe.gmm "up_proj"(%rows, %up) weight_scale(%up_scale)
    %gate_up = moe.gmm "up_proj"(%rows, %up) weight_scale(%up_scale) {tensors = ["gate_up"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 80 x i8>, !moe.tensor<4 x 1 x 80 x f32>) -> !moe.tensor<R x 80 x bf16>
    %act = moe.activation "swiglu" swiglu(%gate_up) {tensors = ["act"]} : (!moe.tensor<R x 80 x bf16>) -> !moe.tensor<R x 40 x bf16>
    %y = moe.combine "combine"(%act, %r) : (!moe.tensor<R x 40 x bf16>, !moe.routing) -> !moe.tensor<T x 40 x bf16>
    moe.output "y", %y : !moe.tensor<T x 40 x bf16>
    moe.save "routing", %r : !moe.routing
    moe.save "gate_up", %gate_up : !moe.tensor<R x 80 x bf16>
  }
  moe.entry @backward after @forward {
    %dy = moe.input "dy" : !moe.tensor<T x 32 x bf16>
    %up = moe.input "up" : !moe.tensor<4 x 32 x 80 x i8>
    %up_scale = moe.input "up_scale" : !moe.tensor<4 x 1 x 80 x f32>
    // The weights of this one lie transposed, and those of 4 bits in pairs.
    %down = moe.input "down" : !moe.tensor<4 x 32 x 40 x i8>
    %half = moe.input "half" : !moe.tensor<4 x 32 x 20 x ui8>
    %down_scale = moe.input "down_scale" : !moe.tensor<4 x 32 x 1 x f32>
    %half_scale = moe.input "half_scale" : !moe.tensor<4 x 32 x 1 x f32>
    %r = moe.saved "routing" : !moe.routing
    %gate_up = moe.saved "gate_up" : !moe.tensor<R x 80 x bf16>
    %rows = moe.dispatch "dispatch"(%dy, %r) {tensors = ["rows_dy"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // Rows are quantised for each scale of their columns, and once for equal ones.
    // CHECK-DAG: moe.quantize "rows_dy_quantize"(%rows_dy) column_scale(%down_scale)
    // CHECK-DAG: moe.quantize "rows_dy_quantize_2"(%rows_dy) column_scale(%half_scale)
    // CHECK: moe.gmm "act_grad"(%rows_dy_codes, %down) row_scale(%rows_dy_row_scale) :
    // CHECK: moe.gmm "again"(%rows_dy_codes, %down) row_scale(%rows_dy_row_scale) :
    // CHECK: moe.gmm "half_grad"(%rows_dy_codes_{{.*}}, %half) row_scale(%rows_dy_row_scale_{{.*}}) :
    // ONLY: moe.gmm "act_grad"(%rows_dy_codes, %down) row_scale(%rows_dy_row_scale) :
    // FUSED: moe.gmm_activation_grad "act_grad_swiglu_grad" swiglu(%{{.*}}, %down, %gate_up) row_scale(%rows_dy_row_scale)
    %act_grad = moe.gmm "act_grad"(%rows, %down) weight_scale(%down_scale)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 40 x i8>, !moe.tensor<4 x 32 x 1 x f32>) -> !moe.tensor<R x 40 x bf16>
    %again = moe.gmm "again"(%rows, %down) weight_scale(%down_scale)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 40 x i8>, !moe.tensor<4 x 32 x 1 x f32>) -> !moe.tensor<R x 40 x bf16>
    %half_grad = moe.gmm "half_grad"(%rows, %half) weight_scale(%half_scale)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 20 x ui8>, !moe.tensor<4 x 32 x 1 x f32>) -> !moe.tensor<R x 40 x bf16>
    %gate_up_grad = moe.activation_grad "swiglu_grad" swiglu(%act_grad, %gate_up) {tensors = ["gate_up_grad"]}
        : (!moe.tensor<R x 40 x bf16>, !moe.tensor<R x 80 x bf16>) -> !moe.tensor<R x 80 x bf16>
    // CHECK: moe.quantize "gate_up_grad_quantize"(%gate_up_grad) column_scale(%up_scale)
    // CHECK: moe.gmm "up_grad"(%gate_up_grad_codes, %up) row_scale(%gate_up_grad_row_scale) transpose :
    // ONLY: moe.gmm "up_grad"(%gate_up_grad_codes, %up) row_scale(%gate_up_grad_row_scale) transpose :
    %up_grad = moe.gmm "up_grad"(%gate_up_grad, %up) weight_scale(%up_scale) transpose : (!moe.tensor<R x 80 x bf16>, !moe.tensor<4 x 32 x 80 x i8>, !moe.tensor<4 x 1 x 80 x f32>) -> !moe.tensor<R x 32 x bf16>
    %d = moe.combine "combine"(%up_grad, %r) : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    %sum = moe.add "sum"(%again, %half_grad) : (!moe.tensor<R x 40 x bf16>, !moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    %e = moe.combine "combine2"(%sum, %r) : (!moe.tensor<R x 40 x bf16>, !moe.routing) -> !moe.tensor<T x 40 x bf16>
    moe.output "d", %d : !moe.tensor<T x 32 x bf16>
    moe.output "e", %e : !moe.tensor<T x 40 x bf16>
  }
}
