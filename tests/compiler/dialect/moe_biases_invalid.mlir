// What routes without ids, biases, column sums, row dots and outputs of rows refuse.
// RUN: sluice-opt %s --split-input-file --verify-diagnostics

// Every token goes to every expert: top_k says so, too.
moe.graph @g ranks = 1 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    // expected-error@+1 {{node 'route' has no ids, so that every token goes to every expert, but top_k is 2 of 4 experts}}
    %r = moe.route "route" : () -> !moe.routing
  }
}

// -----

// A bias is of each expert.
moe.graph @g ranks = 2 tp = 2 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %r = moe.route "route" : () -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 48 x bf16>
    %b = moe.input "b" : !moe.tensor<48 x bf16>
    // expected-error@+1 {{node 'n': bias is [48 x bf16], expected [E x N x bf16] with E = 2 (experts / groups), N = 48 (weight)}}
    %n = moe.gmm "n"(%rows, %w) bias(%b) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>, !moe.tensor<48 x bf16>) -> !moe.tensor<R x 48 x bf16>
  }
}

// -----

// A dense layer has one bias for all tokens.
moe.graph @g ranks = 2 tp = 2 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %r = moe.route "route" : () -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 48 x bf16>
    %b = moe.input "b" : !moe.tensor<2 x 48 x bf16>
    // expected-error@+1 {{node 'n': bias is [2 x 48 x bf16], expected [N x bf16] with N = 48 (weight)}}
    %n = moe.gmm "n"(%x, %w) bias(%b) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x bf16>, !moe.tensor<2 x 48 x bf16>) -> !moe.tensor<T x 48 x bf16>
  }
}

// -----

// The bias of a fused product covers gate and up.
moe.graph @g ranks = 2 tp = 2 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %r = moe.route "route" : () -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 48 x bf16>
    %b = moe.input "b" : !moe.tensor<2 x 24 x bf16>
    // expected-error@+1 {{node 'n': bias is [2 x 24 x bf16], expected [E x 2I x bf16] with E = 2 (experts / groups), I = 24 (weight)}}
    %n = moe.gmm_activation "n" swiglu(%rows, %w) bias(%b) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>, !moe.tensor<2 x 24 x bf16>) -> !moe.tensor<R x 24 x bf16>
  }
}

// -----

// The bias of a combine is one for all tokens.
moe.graph @g ranks = 2 tp = 2 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %r = moe.route "route" : () -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %b = moe.input "b" : !moe.tensor<2 x 32 x bf16>
    // expected-error@+1 {{node 'n': bias is [2 x 32 x bf16], expected [H x bf16] with H = 32 (rows)}}
    %n = moe.combine "n"(%rows, %r) bias(%b) : (!moe.tensor<R x 32 x bf16>, !moe.routing, !moe.tensor<2 x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
  }
}

// -----

// Sums over the rows of each expert.
moe.graph @g ranks = 2 tp = 2 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %r = moe.route "route" : () -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error@+1 {{node 'n': sums is [32 x f32], expected [E x N x f32 or bf16] with E = 2 (experts / groups), N = 32 (a)}}
    %n = moe.column_sum "n"(%rows) : (!moe.tensor<R x 32 x bf16>) -> !moe.tensor<32 x f32>
  }
}

// -----

// Sums over tokens are not cut by experts.
moe.graph @g ranks = 2 tp = 2 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %r = moe.route "route" : () -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error@+1 {{node 'n' cannot be cut by 'experts'}}
    %n = moe.column_sum "n"(%x) split <experts, 1> : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<32 x f32>
  }
}

// -----

// Only the caller's memory has old content.
moe.graph @g ranks = 2 tp = 2 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %r = moe.route "route" : () -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error@+1 {{node 'n' accumulates, but its gradient is not an output of entry 'e'}}
    %n = moe.column_sum "n"(%x) accumulate : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<32 x f32>
  }
}

// -----

// Each row has the vector of its expert.
moe.graph @g ranks = 2 tp = 2 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %r = moe.route "route" : () -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %b = moe.input "b" : !moe.tensor<2 x 48 x bf16>
    // expected-error@+1 {{node 'n': b is [2 x 48 x bf16], expected [E x N x bf16] with E = 2 (experts / groups), N = 32 (a)}}
    %n = moe.row_dot "n"(%rows, %b) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 48 x bf16>) -> !moe.tensor<R x f32>
  }
}

// -----

// Dot products of rows are of rows.
moe.graph @g ranks = 2 tp = 2 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %r = moe.route "route" : () -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %b = moe.input "b" : !moe.tensor<2 x 32 x bf16>
    // expected-error@+1 {{node 'n': dots is [T x f32], expected [R x f32]}}
    %n = moe.row_dot "n"(%rows, %b) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 32 x bf16>) -> !moe.tensor<T x f32>
  }
}

// -----

// Tensors of tokens are whole.
moe.graph @g ranks = 2 tp = 2 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %r = moe.route "route" : () -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %n = moe.scale "n"(%x) by 2.0 : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    // expected-error@+1 {{output 'y' is [T x 32 x bf16] and declares to be columns, which only outputs of rows do}}
    moe.output "y", %n shard columns : !moe.tensor<T x 32 x bf16>
  }
}

// -----

// Rows are cut by columns only.
moe.graph @g ranks = 2 tp = 2 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %r = moe.route "route" : () -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error@+1 {{output 'y' of rows declares to be partial, expected whole, columns or gate_up_columns}}
    moe.output "y", %rows shard partial : !moe.tensor<R x 32 x bf16>
  }
}
