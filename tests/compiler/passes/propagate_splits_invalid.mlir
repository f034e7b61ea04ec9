// A conflict names both nodes and where both splits are set.
// RUN: sluice-opt %s --propagate-splits --split-input-file -verify-diagnostics

moe.graph @conflict ranks = 1 experts = 4 top_k = 2 max_tokens = 4096 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<4 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-note @+1 {{the split of 'gate_grad' is set here}}
    %up = moe.gmm "gate_grad"(%rows, %w) split <rows, 96>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // expected-error @+1 {{node 'combine' cuts 'rows' by 128, but its producer 'gate_grad' cuts it by 96}}
    %y = moe.combine "combine"(%up, %r) split <rows, 128>
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// Entries share slots if one reads what the other saves.
moe.graph @across ranks = 1 experts = 4 top_k = 2 max_tokens = 4096 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-note @+1 {{the split of 'dispatch' is set here}}
    %rows = moe.dispatch "dispatch"(%x, %r) split <rows, 64>
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    moe.save "rows_x", %rows : !moe.tensor<R x 32 x bf16>
    moe.save "routing", %r : !moe.routing
  }
  moe.entry @backward after @forward {
    %r = moe.saved "routing" : !moe.routing
    %rows = moe.saved "rows_x" : !moe.tensor<R x 32 x bf16>
    // expected-error @+1 {{node 'combine' cuts 'rows' by 128, but its producer 'dispatch' cuts it by 64}}
    %y = moe.combine "combine"(%rows, %r) split <rows, 128>
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

moe.graph @unit ranks = 1 experts = 4 top_k = 2 max_tokens = 4096 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-error @+1 {{node 'dispatch' cuts 'rows' by 100, expected a multiple of 16}}
    %rows = moe.dispatch "dispatch"(%x, %r) split <rows, 100>
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%rows, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

moe.graph @three ranks = 1 experts = 4 top_k = 2 max_tokens = 4096 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<4 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r)
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %a = moe.gmm "a"(%rows, %w) split <rows, 128>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // expected-note @+1 {{the split of 'b' is set here}}
    %b = moe.gmm "b"(%a, %w) split <rows, 256>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    // expected-error @+1 {{node 'c' cuts 'rows' by 512, but 'a' cuts it by 128 and 'b' by 256: expected two sizes at most}}
    %c = moe.gmm "c"(%b, %w) split <rows, 512>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%c, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// Slots of two sizes are cut from each other only if one is a multiple.
moe.graph @not_a_multiple ranks = 1 experts = 4 top_k = 2 max_tokens = 4096 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<4 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-note @+1 {{the split of 'dispatch' is set here}}
    %rows = moe.dispatch "dispatch"(%x, %r) split <rows, 128>
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error @+1 {{node 'up' cuts 'rows' by 192, but its producer 'dispatch' cuts it by 128}}
    %up = moe.gmm "up"(%rows, %w) split <rows, 192>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%up, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// Pieces are cut by the smaller of two sizes, whatever is declared for them.
moe.graph @pieces ranks = 1 experts = 4 top_k = 2 max_tokens = 4096 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<4 x 32 x 32 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-error @+1 {{node 'dispatch' cuts 'rows' by 256, but node 'up' cuts it by 128, and pieces are cut by the smaller size}}
    %rows = moe.dispatch "dispatch"(%x, %r) split <rows, 256>
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-note @+1 {{the split of 'up' is set here}}
    %up = moe.gmm "up"(%rows, %w) split <rows, 128>
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<4 x 32 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
    %y = moe.combine "combine"(%up, %r)
        : (!moe.tensor<R x 32 x bf16>, !moe.routing) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}
