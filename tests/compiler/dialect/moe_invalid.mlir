// What the moe dialect refuses, and where it says so.
// RUN: sluice-opt %s --split-input-file --verify-diagnostics

// Types.

// expected-error@+1 {{only the leading dimension may be T, R or E}}
!t = !moe.tensor<8 x T x bf16>

// -----

// expected-error@+1 {{dimension is 0, expected at least 1}}
!t = !moe.tensor<T x 0 x bf16>

// -----

// expected-error@+1 {{dimension is 1048577, expected 1 to 1048576}}
!t = !moe.tensor<T x 1048577 x bf16>

// -----

// expected-error@+1 {{element type 'f64' is not supported, expected one of 'bf16', 'f16', 'f32', 'i32'}}
!t = !moe.tensor<T x 8 x f64>

// -----

// expected-error@+1 {{tensor has 4 dimensions, expected 1 to 3}}
!t = !moe.tensor<T x 8 x 8 x 8 x bf16>

// -----

// Limits of the graph.

// expected-error@+1 {{graph 'g': experts is 0, expected 1 to 65536}}
moe.graph @g ranks = 4 experts = 0 top_k = 1 max_tokens = 1 symbols {} {
}

// -----

// expected-error@+1 {{graph 'g': top_k is 9, but there are only 8 experts}}
moe.graph @g ranks = 4 experts = 8 top_k = 9 max_tokens = 1 symbols {} {
}

// -----

// expected-error@+1 {{graph 'g': ranks is 0, expected 1 to 4096}}
moe.graph @g ranks = 0 experts = 8 top_k = 1 max_tokens = 1 symbols {} {
}

// -----

// expected-error@+1 {{graph 'g': symbol 'h' is not an i64}}
moe.graph @g ranks = 1 experts = 8 top_k = 1 max_tokens = 1 symbols {h = 1 : i32} {
}

// -----

// expected-error@+1 {{graph 'g' has no entry}}
moe.graph @g ranks = 1 experts = 8 top_k = 1 max_tokens = 1 symbols {} {
}

// -----

// Entries.

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  // expected-error@+1 {{entry 'e' has no routing, expected a route node or a saved routing}}
  moe.entry @e {
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    // expected-note@+1 {{the first is here}}
    moe.route "a"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-error@+1 {{entry 'e' has a second routing}}
    moe.route "b"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    // expected-note@+1 {{it is first defined here}}
    %routing = moe.route "n"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 4 x bf16>
    // expected-error@+1 {{node 'n' is defined twice in entry 'e'}}
    moe.dispatch "n"(%x, %routing) : (!moe.tensor<T x 4 x bf16>, !moe.routing) -> !moe.tensor<R x 4 x bf16>
  }
}

// -----

// Attributes that no op has.

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    // expected-error@+1 {{node 'n' has an attribute 'splits', expected those of moe.route: node, split, tensors}}
    %routing = moe.route "n"(%ids) {splits = 3 : i64} : (!moe.tensor<T x 2 x i32>) -> !moe.routing
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    // expected-error@+1 {{'moe.input' has an attribute 'shard', expected those of moe.input: sharding, tensor}}
    %ids = moe.input "ids" {shard = 1 : i64} : !moe.tensor<T x 2 x i32>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  // expected-error@+1 {{'moe.entry' has an attribute 'before', expected those of moe.entry: after, sym_name}}
  moe.entry @e attributes {before = "f"} {
  }
}

// -----

// expected-error@+1 {{'moe.graph' has an attribute 'cores', expected those of moe.graph: experts, max_tokens, ranks, spare, sym_name, symbols, tokens, top_k, tp}}
moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} attributes {cores = 3 : i64} {
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    // expected-note@+1 {{it is first defined here}}
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    // expected-error@+1 {{tensor 'ids' is defined twice in entry 'e'}}
    %x = moe.input "ids" : !moe.tensor<T x 4 x bf16>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-error@+1 {{tensor 'y' is not produced by a node of entry 'e'}}
    moe.output "y", %ids : !moe.tensor<T x 2 x i32>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 4 x bf16>
    %rows = moe.dispatch "d"(%x, %routing) : (!moe.tensor<T x 4 x bf16>, !moe.routing) -> !moe.tensor<R x 4 x bf16>
    // expected-note@+1 {{it also goes here}}
    moe.output "rows", %rows : !moe.tensor<R x 4 x bf16>
    // expected-error@+1 {{tensor 'kept' is an output or saved twice}}
    moe.save "kept", %rows : !moe.tensor<R x 4 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    // expected-error@+1 {{node name 'a b', expected a letter or underscore}}
    moe.route "a b"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
  }
}

// -----

// Between entries.

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  // expected-error@+1 {{entry 'e' runs after 'f', which is not an earlier entry}}
  moe.entry @e after @f {
    %routing = moe.saved "routing" : !moe.routing
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @f {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
  }
  moe.entry @e after @f {
    // expected-error@+1 {{tensor 'routing' is not saved by an entry that entry 'e' runs after}}
    %routing = moe.saved "routing" : !moe.routing
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @f {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %x = moe.input "x" : !moe.tensor<T x 4 x bf16>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "d"(%x, %routing) : (!moe.tensor<T x 4 x bf16>, !moe.routing) -> !moe.tensor<R x 4 x bf16>
    moe.save "routing", %routing : !moe.routing
    // expected-note@+1 {{it is saved here}}
    moe.save "rows", %rows : !moe.tensor<R x 4 x bf16>
  }
  moe.entry @e after @f {
    %routing = moe.saved "routing" : !moe.routing
    // expected-error@+1 {{tensor 'rows' is [R x 8 x bf16], but was saved as [R x 4 x bf16]}}
    %rows = moe.saved "rows" : !moe.tensor<R x 8 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @f {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    // expected-note@+1 {{the other one is here}}
    %x = moe.input "x" : !moe.tensor<T x 4 x bf16>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    moe.save "routing", %routing : !moe.routing
  }
  moe.entry @e after @f {
    %routing = moe.saved "routing" : !moe.routing
    // expected-error@+1 {{input 'x' is [T x 8 x bf16], but [T x 4 x bf16] in another entry}}
    %x = moe.input "x" : !moe.tensor<T x 8 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @f {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    // expected-note@+1 {{it is first defined here}}
    %x = moe.input "x" : !moe.tensor<T x 4 x bf16>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-error@+1 {{tensor 'x' is defined twice}}
    %rows = moe.dispatch "d"(%x, %routing) {tensors = ["x"]} : (!moe.tensor<T x 4 x bf16>, !moe.routing) -> !moe.tensor<R x 4 x bf16>
  }
}

// -----

// Nodes: shapes and types.

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 3 x i32>
    // expected-error@+1 {{node 'route': ids is [T x 3 x i32], expected [T x K x i32] with K = 2 (top_k)}}
    moe.route "route"(%ids) : (!moe.tensor<T x 3 x i32>) -> !moe.routing
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %x = moe.input "x" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-error@+1 {{node 'd': tokens is [T x 2 x i32], expected [T x H x bf16 or f32]}}
    moe.dispatch "d"(%x, %routing) : (!moe.tensor<T x 2 x i32>, !moe.routing) -> !moe.tensor<R x 2 x i32>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %x = moe.input "x" : !moe.tensor<T x 64 x i8>
    %s = moe.input "s" : !moe.tensor<T x 2 x bf16>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-error@+1 {{node 'd': scales is [T x 2 x bf16], expected [T x f32]}}
    moe.dispatch_codes "d"(%x, %s, %routing) : (!moe.tensor<T x 64 x i8>, !moe.tensor<T x 2 x bf16>, !moe.routing) -> (!moe.tensor<R x 64 x i8>, !moe.tensor<R x 2 x bf16>)
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %x = moe.input "x" : !moe.tensor<T x 64 x f8E4M3FN>
    %s = moe.input "s" : !moe.tensor<T x 4 x bf16>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-error@+1 {{node 'd': scales is [T x 4 x bf16], expected [T x H/32 x bf16] with H = 64 (codes)}}
    moe.dispatch_codes "d"(%x, %s, %routing) : (!moe.tensor<T x 64 x f8E4M3FN>, !moe.tensor<T x 4 x bf16>, !moe.routing) -> (!moe.tensor<R x 64 x f8E4M3FN>, !moe.tensor<R x 4 x bf16>)
  }
}

// -----

// Rows have the type of their tokens.
moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %x = moe.input "x" : !moe.tensor<T x 4 x f32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-error@+1 {{node 'd': rows is [R x 4 x bf16], expected [R x H x f32] with H = 4 (tokens)}}
    moe.dispatch "d"(%x, %routing) : (!moe.tensor<T x 4 x f32>, !moe.routing) -> !moe.tensor<R x 4 x bf16>
  }
}

// -----

// A sum has the type of its rows, and so has its bias.
moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %x = moe.input "x" : !moe.tensor<T x 4 x f32>
    %b = moe.input "b" : !moe.tensor<4 x bf16>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "d"(%x, %routing) : (!moe.tensor<T x 4 x f32>, !moe.routing) -> !moe.tensor<R x 4 x f32>
    // expected-error@+1 {{node 'c': bias is [4 x bf16], expected [H x f32] with H = 4 (rows)}}
    moe.combine "c"(%rows, %routing) bias(%b) : (!moe.tensor<R x 4 x f32>, !moe.routing, !moe.tensor<4 x bf16>) -> !moe.tensor<T x 4 x f32>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %x = moe.input "x" : !moe.tensor<T x 4 x f32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "d"(%x, %routing) : (!moe.tensor<T x 4 x f32>, !moe.routing) -> !moe.tensor<R x 4 x f32>
    // expected-error@+1 {{node 'c': sum is [T x 4 x bf16], expected [T x H x f32] with H = 4 (rows)}}
    moe.combine "c"(%rows, %routing) : (!moe.tensor<R x 4 x f32>, !moe.routing) -> !moe.tensor<T x 4 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %x = moe.input "x" : !moe.tensor<T x 4 x bf16>
    %w = moe.input "w" : !moe.tensor<T x 2 x f32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    // expected-error@+1 {{node 'd' has weights but no row weights, expected both or neither}}
    moe.dispatch "d"(%x, %routing) weights(%w) : (!moe.tensor<T x 4 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<R x 4 x bf16>
  }
}

// -----

moe.graph @g ranks = 2 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.input "rows" : !moe.tensor<R x 16 x bf16>
    %w = moe.input "w" : !moe.tensor<8 x 16 x 32 x bf16>
    // expected-error@+1 {{node 'up': weight is [8 x 16 x 32 x bf16], expected [E x C x N x bf16 or i8 or ui8 or f8E4M3FN] with E = 4 (experts / ranks), C = 16 (rows)}}
    moe.gmm "up"(%rows, %w) : (!moe.tensor<R x 16 x bf16>, !moe.tensor<8 x 16 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.input "rows" : !moe.tensor<R x 16 x bf16>
    %w = moe.input "w" : !moe.tensor<8 x 16 x 32 x bf16>
    // expected-error@+1 {{node 'up': transposed weight is [8 x 16 x 32 x bf16], expected [E x N x C x bf16 or i8 or ui8 or f8E4M3FN] with E = 8 (experts / ranks), C = 16 (rows)}}
    moe.gmm "up"(%rows, %w) transpose : (!moe.tensor<R x 16 x bf16>, !moe.tensor<8 x 16 x 32 x bf16>) -> !moe.tensor<R x 32 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %a = moe.input "a" : !moe.tensor<R x 16 x bf16>
    // expected-error@+1 {{node 'g': grad is [8 x 16 x 16 x i32], expected [E x M x N x f32 or bf16] with E = 8 (experts / ranks), M = 16 (a), N = 16 (b)}}
    moe.gmm_weight_grad "g"(%a, %a) : (!moe.tensor<R x 16 x bf16>, !moe.tensor<R x 16 x bf16>) -> !moe.tensor<8 x 16 x 16 x i32>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %a = moe.input "a" : !moe.tensor<R x 16 x bf16>
    // expected-error@+1 {{node 'g': grad is [8 x 16 x 16 x i32], expected [E x M x N x f32 or bf16] with E = 8 (experts / ranks), M = 16 (a), N = 16 (b)}}
    %g = moe.gmm_weight_grad "g"(%a, %a) accumulate : (!moe.tensor<R x 16 x bf16>, !moe.tensor<R x 16 x bf16>) -> !moe.tensor<8 x 16 x 16 x i32>
    moe.output "grad", %g : !moe.tensor<8 x 16 x 16 x i32>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %a = moe.input "a" : !moe.tensor<R x 16 x bf16>
    // expected-error@+1 {{node 'g' accumulates, but its gradient is not an output of entry 'e'}}
    %g = moe.gmm_weight_grad "g"(%a, %a) accumulate : (!moe.tensor<R x 16 x bf16>, !moe.tensor<R x 16 x bf16>) -> !moe.tensor<8 x 16 x 16 x f32>
    moe.save "grad", %g : !moe.tensor<8 x 16 x 16 x f32>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %a = moe.input "a" : !moe.tensor<R x 15 x bf16>
    // expected-error@+1 {{node 's': gate_up is [R x 15 x bf16], expected [R x 2I x bf16]}}
    moe.activation "s" swiglu(%a) : (!moe.tensor<R x 15 x bf16>) -> !moe.tensor<R x 7 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %a = moe.input "a" : !moe.tensor<R x 8 x bf16>
    %g = moe.input "g" : !moe.tensor<R x 18 x bf16>
    // expected-error@+1 {{node 's': gate_up is [R x 18 x bf16], expected [R x 2I x bf16] with I = 8 (act_grad)}}
    moe.activation_grad "s" swiglu(%a, %g) : (!moe.tensor<R x 8 x bf16>, !moe.tensor<R x 18 x bf16>) -> !moe.tensor<R x 18 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.input "rows" : !moe.tensor<R x 8 x bf16>
    // expected-error@+1 {{node 'c': sum is [R x 8 x bf16], expected [T x H x bf16] with H = 8 (rows)}}
    moe.combine "c"(%rows, %routing) : (!moe.tensor<R x 8 x bf16>, !moe.routing) -> !moe.tensor<R x 8 x bf16>
  }
}

// -----

// Nodes: ids, names, splits.

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %routing = moe.saved "routing" : !moe.routing
    %ids = moe.saved "ids" : !moe.tensor<T x 2 x i32>
    // expected-error@+1 {{node 'route': ids are not an input of the entry}}
    moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    // expected-error@+1 {{node 'route' names 2 tensors, but has 1 results}}
    moe.route "route"(%ids) {tensors = ["a", "b"]} : (!moe.tensor<T x 2 x i32>) -> !moe.routing
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    // expected-error@+1 {{node 'route' cannot be cut by 'rows'}}
    moe.route "route"(%ids) split <rows, 0> : (!moe.tensor<T x 2 x i32>) -> !moe.routing
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 4 x bf16>
    // expected-error@+1 {{split of 'rows' has size -1, expected 0 (the producer's) to 4194304}}
    moe.dispatch "d"(%x, %routing) split <rows, -1> : (!moe.tensor<T x 4 x bf16>, !moe.routing) -> !moe.tensor<R x 4 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %a = moe.input "a" : !moe.tensor<R x 16 x bf16>
    // expected-error@+1 {{node 's' of kind 'geglu' has a limit, expected none}}
    moe.activation "s" geglu(%a) limit 7.0 : (!moe.tensor<R x 16 x bf16>) -> !moe.tensor<R x 8 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %a = moe.input "a" : !moe.tensor<R x 16 x bf16>
    // expected-error@+1 {{node 's' of kind 'swiglu_clamp' has no limit, expected one}}
    moe.activation "s" swiglu_clamp(%a) : (!moe.tensor<R x 16 x bf16>) -> !moe.tensor<R x 8 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %a = moe.input "a" : !moe.tensor<R x 16 x bf16>
    // expected-error@+1 {{node 's' has limit}}
    moe.activation "s" swiglu_clamp(%a) limit -7.0 : (!moe.tensor<R x 16 x bf16>) -> !moe.tensor<R x 8 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 8 top_k = 2 max_tokens = 1 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %routing = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %a = moe.input "a" : !moe.tensor<R x 16 x bf16>
    // expected-error@+1 {{expected a positive number that bf16 holds}}
    moe.activation "s" swiglu_clamp(%a) limit 7.01 : (!moe.tensor<R x 16 x bf16>) -> !moe.tensor<R x 8 x bf16>
  }
}
