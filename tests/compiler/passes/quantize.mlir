// Weights of products become codes, and rows that are multiplied by them, too; a backward reads the same codes.
// RUN: sluice-opt %s --quantize-weights --split-input-file | FileCheck %s --check-prefix=WEIGHTS
// RUN: sluice-opt %s --quantize-weights="keep=wd" --split-input-file | FileCheck %s --check-prefix=KEEP
// RUN: sluice-opt %s --quantize-weights --quantize-rows --split-input-file | FileCheck %s
// RUN: sluice-opt %s --quantize-weights --fuse --quantize-rows --split-input-file | FileCheck %s --check-prefix=FUSED
// RUN: sluice-opt %s --quantize-weights="encode=int4:z" --quantize-rows | FileCheck %s --check-prefix=HALVES
// RUN: sluice-opt %s --quantize-weights="encode=int4:g32 keep=wt" --quantize-rows | FileCheck %s --check-prefix=GROUPS
// RUN: sluice-opt %s --quantize-weights="encode=int4:g32,weights.wt=int8,weights.wd=bf16" --quantize-rows --split-input-file | FileCheck %s --check-prefix=SINGLE
// RUN: not sluice-opt %s --quantize-weights="encode=int8,weights.v=int8" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not sluice-opt %s --quantize-weights="encode=weights.wt=int8 keep=wt" 2>&1 | FileCheck %s --check-prefix=TRAINED
// RUN: not sluice-opt %s --quantize-weights="encode=int4:g32" 2>&1 | FileCheck %s --check-prefix=LENGTH
// RUN: sluice-opt %s --quantize-weights="encode=fp8e4m3:128x128" --quantize-rows | FileCheck %s --check-prefix=SQUARES
// RUN: sluice-opt %s --quantize-weights="encode=mxfp4 keep=wt" --quantize-rows | FileCheck %s --check-prefix=POWERS
// RUN: sluice-opt %s --quantize-weights="encode=nvfp4 keep=wt" --quantize-rows | FileCheck %s --check-prefix=FACTOR
// LENGTH: error: 'wt' has sums of 20, expected a multiple of the group of 32
// UNKNOWN: error: encode: weights.v=int8, but graph 'layer' has no weight of that name, expected one of w, wd, wt
// TRAINED: error: encode: weights.wt=int8, but that weight is trained, expected bf16

// Each weight may have another encoding. One of bf16 multiplies bf16 rows.
// SINGLE: moe.input "w" : !moe.tensor<4 x 32 x 20 x ui8>
// SINGLE-NEXT: moe.input "w_scale" : !moe.tensor<4 x 1 x 40 x f32>
// SINGLE: moe.input "wt" : !moe.tensor<4 x 32 x 20 x i8>
// SINGLE-NEXT: moe.input "wt_scale" : !moe.tensor<4 x 32 x 1 x f32>
// SINGLE: moe.input "wd" : !moe.tensor<4 x 32 x 40 x bf16>
// SINGLE: moe.gmm "up"(%{{.*}}, %w) row_scale(%{{.*}}) weight_scale(%w_scale)
// SINGLE: moe.gmm "other"(%{{.*}}, %wd) :
// Two codes of 4 bits lie in a byte, along the last dimension.
// HALVES: moe.quantize "x_quantize"(%x)
// HALVES: moe.input "w" : !moe.tensor<4 x 32 x 20 x ui8>
// HALVES-NEXT: moe.input "w_scale" : !moe.tensor<4 x 1 x 40 x f32>
// HALVES-NEXT: moe.input "w_zero" : !moe.tensor<4 x 1 x 40 x f32>
// HALVES: moe.input "wt" : !moe.tensor<4 x 32 x 10 x ui8>
// HALVES: moe.input "wt_zero" : !moe.tensor<4 x 32 x 1 x f32>
// HALVES: %[[C:.*]], %[[S:.*]] = moe.dispatch_codes "dispatch"
// HALVES: moe.gmm "up"(%[[C]], %w) row_scale(%[[S]]) weight_scale(%w_scale) weight_zero(%w_zero)
// HALVES: moe.gmm "grad"(%{{.*}}, %wt) weight_scale(%wt_scale) weight_zero(%wt_zero) :
// Groups of 32 along sums of 32.
// GROUPS: moe.quantize "x_quantize"(%x)
// GROUPS: moe.input "w" : !moe.tensor<4 x 32 x 20 x ui8>
// GROUPS-NEXT: moe.input "w_scale" : !moe.tensor<4 x 1 x 40 x f32>
// GROUPS: moe.input "wt" : !moe.tensor<4 x 32 x 20 x bf16>
// Codes of 8-bit floats have a scale for each square; their rows stay as they are.
// SQUARES: moe.input "w" : !moe.tensor<4 x 32 x 40 x f8E4M3FN>
// SQUARES-NEXT: moe.input "w_scale" : !moe.tensor<4 x 1 x 1 x f32>
// SQUARES-NOT: moe.quantize
// SQUARES: moe.gmm "up"(%rows, %w) weight_scale(%w_scale)
// Codes of 4-bit floats have powers of two as scales; their rows stay as they are, too.
// POWERS: moe.input "w" : !moe.tensor<4 x 32 x 20 x ui8>
// POWERS-NEXT: moe.input "w_scale" : !moe.tensor<4 x 1 x 40 x !moe.f8E8M0>
// POWERS-NOT: moe.quantize
// POWERS: moe.gmm "up"(%rows, %w) weight_scale(%w_scale)
// Or 8-bit floats, and a factor of all of an expert.
// FACTOR: moe.input "w" : !moe.tensor<4 x 32 x 20 x ui8>
// FACTOR-NEXT: moe.input "w_scale" : !moe.tensor<4 x 2 x 40 x f8E4M3FN>
// FACTOR-NEXT: moe.input "w_factor" : !moe.tensor<4 x 1 x f32>
// FACTOR-NOT: moe.quantize
// FACTOR: moe.gmm "up"(%rows, %w) weight_scale(%w_scale) weight_factor(%w_factor)

// CHECK-LABEL: @layer
// WEIGHTS-LABEL: @layer
// KEEP-LABEL: @layer
// FUSED-LABEL: @layer
moe.graph @layer ranks = 1 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    // WEIGHTS: moe.input "w" : !moe.tensor<4 x 32 x 40 x i8>
    // WEIGHTS-NEXT: moe.input "w_scale" : !moe.tensor<4 x 1 x 40 x f32>
    %w = moe.input "w" : !moe.tensor<4 x 32 x 40 x bf16>
    // WEIGHTS: moe.input "wt" : !moe.tensor<4 x 32 x 20 x i8>
    // WEIGHTS-NEXT: moe.input "wt_scale" : !moe.tensor<4 x 32 x 1 x f32>
    %wt = moe.input "wt" : !moe.tensor<4 x 32 x 20 x bf16>
    // KEEP: moe.input "wd" : !moe.tensor<4 x 32 x 40 x bf16>
    %wd = moe.input "wd" : !moe.tensor<4 x 32 x 40 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // Two products read the same rows, whose codes are those of the tokens.
    // CHECK: %[[XC:.*]], %[[XS:.*]] = moe.quantize "x_quantize"(%x) {tensors = ["x_codes", "x_row_scale"]}
    // CHECK-NOT: moe.dispatch "
    // CHECK: %[[C:.*]], %[[S:.*]] = moe.dispatch_codes "dispatch"(%[[XC]], %[[XS]], %{{.*}}) {tensors = ["rows_codes", "rows_row_scale"]} :
    // CHECK-SAME: -> (!moe.tensor<R x 32 x i8>, !moe.tensor<R x f32>)
    // CHECK-NOT: moe.quantize "rows
    // CHECK: moe.gmm "up"(%[[C]], %w) row_scale(%[[S]]) weight_scale(%w_scale)
    // WEIGHTS: moe.gmm "up"(%rows, %w) weight_scale(%w_scale)
    // FUSED: moe.quantize
    // FUSED: moe.gmm_activation "up_swiglu" swiglu(%{{.*}}, %w) row_scale(%{{.*}}) weight_scale(%w_scale)
    %up = moe.gmm "up"(%rows, %w) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    // CHECK: moe.gmm "other"(%[[C]], %wd) row_scale(%[[S]])
    // KEEP: moe.gmm "other"(%{{.*}}, %wd) :
    %other = moe.gmm "other"(%rows, %wd) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    %both = moe.add "both"(%up, %other) : (!moe.tensor<R x 40 x bf16>, !moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    %act = moe.activation "swiglu" swiglu(%up) : (!moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 20 x bf16>
    %act2 = moe.activation "more" swiglu(%both) : (!moe.tensor<R x 40 x bf16>) -> !moe.tensor<R x 20 x bf16>
    %sum = moe.add "sum"(%act, %act2) : (!moe.tensor<R x 20 x bf16>, !moe.tensor<R x 20 x bf16>) -> !moe.tensor<R x 20 x bf16>
    // CHECK: moe.gmm "down"(%{{.*}}, %wt) row_scale(%{{.*}}) weight_scale(%wt_scale) transpose
    %down = moe.gmm "down"(%sum, %wt) transpose
        : (!moe.tensor<R x 20 x bf16>, !moe.tensor<4 x 32 x 20 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%down, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    moe.save "routing", %r : !moe.routing
  }
  moe.entry @backward after @forward {
    %dy = moe.input "dy" : !moe.tensor<T x 32 x bf16>
    // WEIGHTS: moe.input "wt" : !moe.tensor<4 x 32 x 20 x i8>
    // WEIGHTS-NEXT: moe.input "wt_scale" : !moe.tensor<4 x 32 x 1 x f32>
    %wt = moe.input "wt" : !moe.tensor<4 x 32 x 20 x bf16>
    %r = moe.saved "routing" : !moe.routing
    %rows = moe.dispatch "dispatch"(%dy, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // The scale changes along the sum, so these rows stay bf16.
    // CHECK: moe.gmm "grad"(%{{.*}}, %wt) weight_scale(%wt_scale) :
    %grad = moe.gmm "grad"(%rows, %wt) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 20 x bf16>) -> !moe.tensor<R x 20 x bf16>
    %d = moe.combine "combine"(%grad, %r) : (!moe.tensor<R x 20 x bf16>, !moe.routing) -> !moe.tensor<T x 20 x bf16>
    moe.output "d", %d : !moe.tensor<T x 20 x bf16>
  }
}
