// Nodes take the size of their producers, or the default, each in the space of its result.
// RUN: sluice-opt %s --propagate-splits --split-input-file | FileCheck %s
// RUN: sluice-opt %s --propagate-splits="rows=64 tokens=8" --split-input-file | FileCheck %s --check-prefix=SMALL

// CHECK-LABEL: @defaults
// SMALL-LABEL: @defaults
moe.graph @defaults ranks = 1 experts = 4 top_k = 2 max_tokens = 4096 symbols {} {
  moe.entry @backward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<4 x 32 x 48 x bf16>
    %wd = moe.input "wd" : !moe.tensor<4 x 48 x 32 x bf16>
    // CHECK: moe.route
    // CHECK-NOT: split
    // CHECK-SAME: !moe.routing
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // CHECK: moe.dispatch {{.*}} split <rows, 128>
    // SMALL: moe.dispatch {{.*}} split <rows, 64>
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK: moe.gmm {{.*}} split <rows, 128>
    // SMALL: moe.gmm {{.*}} split <rows, 64>
    %up = moe.gmm "up"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
    // CHECK: moe.gmm_weight_grad {{.*}} split <experts, 1> {moe.resplit = ["dispatch", "up"]}
    %g = moe.gmm_weight_grad "grad"(%rows, %up)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<R x 48 x bf16>) -> !moe.tensor<4 x 32 x 48 x f32>
    // CHECK: moe.gmm {{.*}} split <rows, 128>
    %down = moe.gmm "down"(%up, %wd)
        : (!moe.tensor<R x 48 x bf16>, !moe.tensor<4 x 48 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // CHECK: moe.combine {{.*}} split <tokens, 32>
    // SMALL: moe.combine {{.*}} split <tokens, 8>
    %y = moe.combine "combine"(%down, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    moe.output "g", %g : !moe.tensor<4 x 32 x 48 x f32>
  }
}

// -----

// A declared size holds for all nodes, before and after; size 0 keeps the space and takes the size.
// CHECK-LABEL: @declared
moe.graph @declared ranks = 1 experts = 4 top_k = 2 max_tokens = 4096 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<4 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // CHECK: moe.dispatch {{.*}} split <rows, 48>
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK: moe.gmm {{.*}} split <rows, 48>
    %up = moe.gmm "up"(%rows, %w) split <rows, 48>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // CHECK: moe.combine {{.*}} split <rows, 48>
    %y = moe.combine "combine"(%up, %r) split <rows, 0>
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// Nodes on tokens take the size of tokens, and so does a sum over them, whatever the size of rows.
// CHECK-LABEL: @dense
moe.graph @dense ranks = 1 experts = 4 top_k = 2 max_tokens = 4096 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 48 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // CHECK: moe.dispatch {{.*}} split <rows, 96>
    %rows = moe.dispatch "dispatch"(%x, %r) split <rows, 96>
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK: moe.gmm {{.*}} split <tokens, 24>
    %up = moe.gmm "up"(%x, %w)
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x bf16>) -> !moe.tensor<T x 48 x bf16>
    // CHECK: moe.scale {{.*}} split <tokens, 24> :
    %half = moe.scale "half"(%up) by 0.5 split <tokens, 24> : (!moe.tensor<T x 48 x bf16>) -> !moe.tensor<T x 48 x bf16>
    // CHECK: moe.gmm_weight_grad {{.*}} split <tokens, 24> {moe.resplit = ["half"]}
    %grad = moe.gmm_weight_grad "grad"(%x, %half)
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 48 x bf16>) -> !moe.tensor<32 x 48 x f32>
    // CHECK: moe.combine {{.*}} split <tokens, 24>
    %y = moe.combine "combine"(%rows, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    moe.output "g", %grad : !moe.tensor<32 x 48 x f32>
  }
}

// -----

// A slot is at most as long as all rows that an expert, or all tokens that a rank, can have.
// CHECK-LABEL: @tiny
moe.graph @tiny ranks = 1 experts = 4 top_k = 2 max_tokens = 7 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // CHECK: moe.dispatch {{.*}} split <rows, 16>
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK: moe.combine {{.*}} split <tokens, 7>
    %y = moe.combine "combine"(%rows, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// Two sizes of rows: nodes between them are re-split, and a node without a size takes the smallest of its
// producers', in this entry and in an earlier one. Pieces have the smaller.
// CHECK-LABEL: @two_sizes
moe.graph @two_sizes ranks = 1 experts = 4 top_k = 2 max_tokens = 4096 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<4 x 32 x 48 x bf16>
    %wd = moe.input "wd" : !moe.tensor<4 x 24 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // CHECK: moe.dispatch {{.*}} split <rows, 128> :
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK: moe.gmm {{.*}} split <rows, 256> {moe.resplit = ["dispatch"]}
    %up = moe.gmm "up"(%rows, %w) split <rows, 256>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
    // CHECK: moe.activation {{.*}} split <rows, 128> {moe.resplit = ["up"]}
    %act = moe.activation "act" swiglu(%up) split <rows, 128>
        : (!moe.tensor<R x 48 x bf16>) -> !moe.tensor<R x 24 x bf16>
    // CHECK: moe.gmm {{.*}} split <rows, 128> :
    %down = moe.gmm "down"(%act, %wd)
        : (!moe.tensor<R x 24 x bf16>, !moe.tensor<4 x 24 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // CHECK: moe.combine {{.*}} split <tokens, 32> :
    %y = moe.combine "combine"(%down, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
    moe.save "gate_up", %up : !moe.tensor<R x 48 x bf16>
    moe.save "routing", %r : !moe.routing
  }
  moe.entry @backward after @forward {
    %r = moe.saved "routing" : !moe.routing
    %up = moe.saved "gate_up" : !moe.tensor<R x 48 x bf16>
    // CHECK: moe.activation {{.*}} split <rows, 256> :
    %act = moe.activation "again" swiglu(%up)
        : (!moe.tensor<R x 48 x bf16>) -> !moe.tensor<R x 24 x bf16>
    // CHECK: moe.gmm_weight_grad {{.*}} split <experts, 1> {moe.resplit = ["again"]}
    %g = moe.gmm_weight_grad "grad"(%act, %up)
        : (!moe.tensor<R x 24 x bf16>, !moe.tensor<R x 48 x bf16>) -> !moe.tensor<4 x 24 x 48 x f32>
    moe.output "g", %g : !moe.tensor<4 x 24 x 48 x f32>
  }
}
