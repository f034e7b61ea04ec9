// The extent E is allowed only if ranks own different numbers of experts.
// RUN: sluice-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{only the leading dimension may be T, R or E}}
!t = !moe.tensor<T x E x bf16>

// -----

moe.graph @g ranks = 2 experts = 5 top_k = 2 max_tokens = 8 symbols {} {
  moe.entry @e {
    %rows = moe.input "rows" : !moe.tensor<R x 32 x bf16>
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 48 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-error@+1 {{node 'up': weight is [2 x 32 x 48 x bf16], expected [E x C x N x bf16 or i8 or ui8 or f8E4M3FN] with E the experts of each rank (5 of 2 ranks), C = 32 (rows)}}
    %up = moe.gmm "up"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
  }
}

// -----

moe.graph @g ranks = 2 experts = 4 top_k = 2 max_tokens = 8 symbols {} {
  moe.entry @e {
    %rows = moe.input "rows" : !moe.tensor<R x 32 x bf16>
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %w = moe.input "w" : !moe.tensor<E x 32 x 48 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-error@+1 {{node 'up': weight is [E x 32 x 48 x bf16], expected [E x C x N x bf16 or i8 or ui8 or f8E4M3FN] with E = 2 (experts / ranks), C = 32 (rows)}}
    %up = moe.gmm "up"(%rows, %w)
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<E x 32 x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
  }
}
