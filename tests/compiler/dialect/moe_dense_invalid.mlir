// What nodes on tokens, factors, sums and fused nodes refuse.
// RUN: sluice-opt %s --split-input-file --verify-diagnostics

// A dense layer has one weight for all tokens.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 48 x bf16>
    // expected-error@+1 {{node 'n': weight is [2 x 32 x 48 x bf16], expected [C x N x bf16 or i8 or ui8 or f8E4M3FN] with C = 32 (rows)}}
    %n = moe.gmm "n"(%x, %w) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>) -> !moe.tensor<T x 48 x bf16>
  }
}

// -----

// Rows have one weight per expert.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 48 x bf16>
    // expected-error@+1 {{node 'n': weight is [32 x 48 x bf16], expected [E x C x N x bf16 or i8 or ui8 or f8E4M3FN] with E = 2 (experts / ranks), C = 32 (rows)}}
    %n = moe.gmm "n"(%rows, %w) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<32 x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
  }
}

// -----

// Results computed from tokens are of tokens.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 48 x bf16>
    // expected-error@+1 {{node 'n': product is [R x 48 x bf16], expected [T x N x bf16] with N = 48 (weight)}}
    %n = moe.gmm "n"(%x, %w) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x bf16>) -> !moe.tensor<R x 48 x bf16>
  }
}

// -----

// A factor of 0 is not allowed in a program.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 48 x bf16>
    // expected-error@+1 {{node 'n' has alpha 0.000000e+00, expected a finite number other than 0}}
    %n = moe.gmm "n"(%x, %w) alpha 0.0 : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x bf16>) -> !moe.tensor<T x 48 x bf16>
  }
}

// -----

// Nor is a factor that is not finite: these are the bits of infinity.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error@+1 {{node 'n' has alpha INF, expected a finite number other than 0}}
    %n = moe.scale "n"(%x) by 0x7F800000 : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
  }
}

// -----

// Gradients of weights are f32 or bf16.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error@+1 {{node 'n': grad is [32 x 32 x i32], expected [M x N x f32 or bf16] with M = 32 (a), N = 32 (b)}}
    %n = moe.gmm_weight_grad "n"(%x, %x) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 32 x bf16>) -> !moe.tensor<32 x 32 x i32>
  }
}

// -----

// A sum over tokens has no experts.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error@+1 {{node 'n': grad is [2 x 32 x 32 x f32], expected [M x N x f32 or bf16]}}
    %n = moe.gmm_weight_grad "n"(%x, %x) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 32 x bf16>) -> !moe.tensor<2 x 32 x 32 x f32>
  }
}

// -----

// Rows and tokens do not mix.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error@+1 {{node 'n': b is [T x 32 x bf16], expected [R x N x bf16 or f8E4M3FN]}}
    %n = moe.gmm_weight_grad "n"(%rows, %x) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<T x 32 x bf16>) -> !moe.tensor<2 x 32 x 32 x f32>
  }
}

// -----

// Nor do they in sums.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error@+1 {{node 'n': b is [R x 32 x bf16], expected [T x N x bf16] with N = 32 (a)}}
    %n = moe.add "n"(%x, %rows) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<R x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
  }
}

// -----

// Weights are not added.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<2 x 32 x 48 x bf16>
    // expected-error@+1 {{node 'n': a is [2 x 32 x 48 x bf16], expected [R x N x bf16]}}
    %n = moe.add "n"(%w, %w) : (!moe.tensor<2 x 32 x 48 x bf16>, !moe.tensor<2 x 32 x 48 x bf16>) -> !moe.tensor<2 x 32 x 48 x bf16>
  }
}

// -----

// A scaled tensor keeps its shape.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error@+1 {{node 'n': scaled is [T x 16 x bf16], expected [T x N x bf16] with N = 32 (value)}}
    %n = moe.scale "n"(%x) by 2.0 : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 16 x bf16>
  }
}

// -----

// The activation of a product of tokens is of tokens.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error@+1 {{node 'n': act is [R x 16 x bf16], expected [T x I x bf16] with I = 16 (gate_up)}}
    %n = moe.activation "n" swiglu(%x) : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<R x 16 x bf16>
  }
}

// -----

// A node can only be split by a space that it has.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error@+1 {{node 'n' cannot be cut by 'rows'}}
    %n = moe.scale "n"(%x) by 2.0 split <rows, 16> : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
  }
}

// -----

// A sum over tokens has no experts.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error@+1 {{node 'n' cannot be cut by 'experts'}}
    %n = moe.gmm_weight_grad "n"(%x, %x) split <experts, 1> : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 32 x bf16>) -> !moe.tensor<32 x 32 x f32>
  }
}

// -----

// A fused activation halves the columns of the product.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 50 x bf16>
    // expected-error@+1 {{node 'n': act is [T x 24 x bf16], expected [T x I x bf16] with I = 25 (weight)}}
    %n = moe.gmm_activation "n" swiglu(%x, %w) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 50 x bf16>) -> !moe.tensor<T x 24 x bf16>
  }
}

// -----

// The product keeps its columns.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 48 x bf16>
    // expected-error@+1 {{node 'n': gate_up is [T x 24 x bf16], expected [T x 2I x bf16] with I = 24 (weight)}}
    %n, %k = moe.gmm_activation "n" swiglu(%x, %w) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x bf16>) -> (!moe.tensor<T x 24 x bf16>, !moe.tensor<T x 24 x bf16>)
  }
}

// -----

// Only some kinds have a limit.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 48 x bf16>
    // expected-error@+1 {{node 'n' of kind 'geglu' has a limit, expected none}}
    %n = moe.gmm_activation "n" geglu(%x, %w) limit 7.0 : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x bf16>) -> !moe.tensor<T x 24 x bf16>
  }
}

// -----

// A fused activation gradient reads gate_up with twice the columns of its product.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 24 x bf16>
    // expected-error@+1 {{node 'n': gate_up is [T x 32 x bf16], expected [T x 2I x bf16] with I = 24 (weight)}}
    %n = moe.gmm_activation_grad "n" swiglu(%x, %w, %x) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 24 x bf16>, !moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 48 x bf16>
  }
}

// -----

// Nodes need their operands.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error@+1 {{'moe.add' op expected 2 operands, but found 0}}
    %n = "moe.add"() {node = "n"} : () -> !moe.tensor<T x 32 x bf16>
  }
}

// -----

// A routing is not a tensor.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // expected-error@+1 {{'moe.scale' op operand #0 must be a tensor of this rank}}
    %n = "moe.scale"(%r) {node = "n", alpha = 2.0 : f32} : (!moe.routing) -> !moe.tensor<T x 32 x bf16>
  }
}
