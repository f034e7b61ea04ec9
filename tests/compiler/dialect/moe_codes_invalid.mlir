// What products of codes, and nodes that make codes, refuse.
// RUN: sluice-opt %s --split-input-file --verify-diagnostics

// A scale of columns is that of each expert's weight.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %rows = moe.dispatch "d"(%x, %r) : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    %s = moe.input "s" : !moe.tensor<2 x 2 x 32 x f32>
    // expected-error@+1 {{node 'q': column_scale is [2 x 2 x 32 x f32], expected [E x 1 x N x f32] with E = 2 (experts / ranks), N = 32 (value)}}
    %q, %qs = moe.quantize "q"(%rows) column_scale(%s) : (!moe.tensor<R x 32 x bf16>, !moe.tensor<2 x 2 x 32 x f32>) -> (!moe.tensor<R x 32 x i8>, !moe.tensor<R x f32>)
  }
}

// -----

// The column scale may belong to a transposed weight, too; tokens have a single one.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %s = moe.input "s" : !moe.tensor<32 x 1 x f32>
    %q, %qs = moe.quantize "q"(%x) column_scale(%s) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 1 x f32>) -> (!moe.tensor<T x 32 x i8>, !moe.tensor<T x f32>)
    %t = moe.input "t" : !moe.tensor<24 x 1 x f32>
    // expected-error@+1 {{node 'p': column_scale is [24 x 1 x f32], expected [N x 1 x f32] with N = 32 (value)}}
    %p, %ps = moe.quantize "p"(%x) column_scale(%t) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<24 x 1 x f32>) -> (!moe.tensor<T x 32 x i8>, !moe.tensor<T x f32>)
  }
}

// -----

// Codes of a weight without a scale are numbers for rows of codes only.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 48 x i8>
    %q, %qs = moe.quantize "q"(%x) : (!moe.tensor<T x 32 x bf16>) -> (!moe.tensor<T x 32 x i8>, !moe.tensor<T x f32>)
    %n = moe.gmm "n"(%q, %w) row_scale(%qs) : (!moe.tensor<T x 32 x i8>, !moe.tensor<32 x 48 x i8>, !moe.tensor<T x f32>) -> !moe.tensor<T x 48 x bf16>
    // expected-error@+1 {{node 'm' has no weight scale, but its weight is [32 x 48 x i8]}}
    %m = moe.gmm "m"(%x, %w) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x i8>) -> !moe.tensor<T x 48 x bf16>
  }
}

// -----

// A zero needs a scale.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 24 x ui8>
    %z = moe.input "z" : !moe.tensor<1 x 48 x f32>
    %q, %qs = moe.quantize "q"(%x) : (!moe.tensor<T x 32 x bf16>) -> (!moe.tensor<T x 32 x i8>, !moe.tensor<T x f32>)
    // expected-error@+1 {{node 'n': weight zero is [1 x 48 x f32], expected f32, of the shape of the scale}}
    %n = moe.gmm "n"(%q, %w) row_scale(%qs) weight_zero(%z) : (!moe.tensor<T x 32 x i8>, !moe.tensor<32 x 24 x ui8>, !moe.tensor<T x f32>, !moe.tensor<1 x 48 x f32>) -> !moe.tensor<T x 48 x bf16>
  }
}

// -----

// Codes of 8-bit floats have a scale for each square, of which the last ones are smaller.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 160 x bf16>
    %w = moe.input "w" : !moe.tensor<160 x 48 x f8E4M3FN>
    %s = moe.input "s" : !moe.tensor<2 x 1 x f32>
    %t = moe.input "t" : !moe.tensor<1 x 1 x f32>
    %n = moe.gmm "n"(%x, %w) weight_scale(%s) : (!moe.tensor<T x 160 x bf16>, !moe.tensor<160 x 48 x f8E4M3FN>, !moe.tensor<2 x 1 x f32>) -> !moe.tensor<T x 48 x bf16>
    // expected-error@+1 {{node 'm': weight scale is [1 x 1 x f32], expected f32 with dimensions of a number for each square of 128 of the weight [160 x 48 x f8E4M3FN]}}
    %m = moe.gmm "m"(%x, %w) weight_scale(%t) : (!moe.tensor<T x 160 x bf16>, !moe.tensor<160 x 48 x f8E4M3FN>, !moe.tensor<1 x 1 x f32>) -> !moe.tensor<T x 48 x bf16>
  }
}

// -----

// Rows that are rounded are multiplied by bf16.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 48 x i8>
    %s = moe.input "s" : !moe.tensor<1 x 48 x f32>
    // expected-error@+1 {{node 'n' rounds its rows, but its weight is [32 x 48 x i8], expected bf16}}
    %n = moe.gmm "n"(%x, %w) weight_scale(%s) {round_a = #moe<rounding mx_e4m3>} : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x i8>, !moe.tensor<1 x 48 x f32>) -> !moe.tensor<T x 48 x bf16>
  }
}

// -----

// Powers of two are scales of codes of 4 bits.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 24 x ui8>
    %v = moe.input "v" : !moe.tensor<32 x 48 x i8>
    %s = moe.input "s" : !moe.tensor<1 x 48 x !moe.f8E8M0>
    %n = moe.gmm "n"(%x, %w) weight_scale(%s) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 24 x ui8>, !moe.tensor<1 x 48 x !moe.f8E8M0>) -> !moe.tensor<T x 48 x bf16>
    // expected-error@+1 {{node 'm': weight scale is [1 x 48 x !moe.f8E8M0], expected f32 with dimensions that divide those of the weight [32 x 48 x i8]}}
    %m = moe.gmm "m"(%x, %v) weight_scale(%s) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x i8>, !moe.tensor<1 x 48 x !moe.f8E8M0>) -> !moe.tensor<T x 48 x bf16>
  }
}

// -----

// Codes that are floats have no zeros.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 24 x ui8>
    %s = moe.input "s" : !moe.tensor<1 x 48 x !moe.f8E8M0>
    // expected-error@+1 {{node 'n': weight zero is [1 x 48 x !moe.f8E8M0], expected f32, of the shape of the scale}}
    %n = moe.gmm "n"(%x, %w) weight_scale(%s) weight_zero(%s) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 24 x ui8>, !moe.tensor<1 x 48 x !moe.f8E8M0>, !moe.tensor<1 x 48 x !moe.f8E8M0>) -> !moe.tensor<T x 48 x bf16>
  }
}

// -----

// Rows of codes are multiplied by whole numbers.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %q = moe.input "q" : !moe.tensor<T x 32 x i8>
    %qs = moe.input "qs" : !moe.tensor<T x f32>
    %w = moe.input "w" : !moe.tensor<32 x 24 x ui8>
    %s = moe.input "s" : !moe.tensor<1 x 48 x !moe.f8E8M0>
    // expected-error@+1 {{node 'n': weight scale is [1 x 48 x !moe.f8E8M0], expected f32, f16 or bf16, because its rows have codes}}
    %n = moe.gmm "n"(%q, %w) row_scale(%qs) weight_scale(%s) : (!moe.tensor<T x 32 x i8>, !moe.tensor<32 x 24 x ui8>, !moe.tensor<T x f32>, !moe.tensor<1 x 48 x !moe.f8E8M0>) -> !moe.tensor<T x 48 x bf16>
  }
}

// -----

// A factor is that of scales that are 8-bit floats.
moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 24 x ui8>
    %s = moe.input "s" : !moe.tensor<2 x 48 x f8E4M3FN>
    %p = moe.input "p" : !moe.tensor<2 x 48 x !moe.f8E8M0>
    %f = moe.input "f" : !moe.tensor<1 x f32>
    %n = moe.gmm "n"(%x, %w) weight_scale(%s) weight_factor(%f) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 24 x ui8>, !moe.tensor<2 x 48 x f8E4M3FN>, !moe.tensor<1 x f32>) -> !moe.tensor<T x 48 x bf16>
    // expected-error@+1 {{node 'm' has a weight factor, but its weight scale is [2 x 48 x !moe.f8E8M0], expected f8E4M3FN}}
    %m = moe.gmm "m"(%x, %w) weight_scale(%p) weight_factor(%f) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 24 x ui8>, !moe.tensor<2 x 48 x !moe.f8E8M0>, !moe.tensor<1 x f32>) -> !moe.tensor<T x 48 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 2 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 48 x bf16>
    %f = moe.input "f" : !moe.tensor<1 x f32>
    // expected-error@+1 {{node 'm' has a weight factor, but no weight scale}}
    %m = moe.gmm "m"(%x, %w) weight_factor(%f) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 48 x bf16>, !moe.tensor<1 x f32>) -> !moe.tensor<T x 48 x bf16>
  }
}
