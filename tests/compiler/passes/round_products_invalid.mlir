// Graphs whose factors cannot be rounded, or do not show which of them are gradients.
// RUN: sluice-opt %s --round-products --split-input-file --verify-diagnostics

// expected-error@+1 {{graph 'two' has several entries, expected one: which products read gradients is known where the backward is derived}}
moe.graph @two ranks = 1 experts = 1 top_k = 1 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %ids = moe.input "ids" : !moe.tensor<T x 1 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 1 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %y = moe.scale "s"(%x) by 2.0 : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
  moe.entry @backward after @forward {
    %ids = moe.input "ids_again" : !moe.tensor<T x 1 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 1 x i32>) -> !moe.routing
    %x = moe.input "dy" : !moe.tensor<T x 32 x bf16>
    %y = moe.scale "s"(%x) by 2.0 : (!moe.tensor<T x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    moe.output "dx", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

moe.graph @grad ranks = 1 experts = 1 top_k = 1 max_tokens = 64 symbols {} {
  moe.entry @run {
    %ids = moe.input "ids" : !moe.tensor<T x 1 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 1 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    // expected-error@+1 {{node 'wgrad' is a weight gradient of the graph, expected a graph whose backward is derived}}
    %g = moe.gmm_weight_grad "wgrad"(%x, %x)
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 32 x bf16>) -> !moe.tensor<32 x 32 x f32>
    moe.output "g", %g : !moe.tensor<32 x 32 x f32>
  }
}

// -----

moe.graph @short ranks = 1 experts = 1 top_k = 1 max_tokens = 64 symbols {} {
  moe.entry @run {
    %ids = moe.input "ids" : !moe.tensor<T x 1 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 1 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 48 x bf16>
    %w = moe.input "w" : !moe.tensor<48 x 32 x bf16>
    // expected-error@+1 {{node 'product' rounds factors of sums of 48 numbers, expected a multiple of 32}}
    %y = moe.gmm "product"(%x, %w)
        : (!moe.tensor<T x 48 x bf16>, !moe.tensor<48 x 32 x bf16>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}

// -----

moe.graph @codes ranks = 1 experts = 1 top_k = 1 max_tokens = 64 symbols {} {
  moe.entry @run {
    %ids = moe.input "ids" : !moe.tensor<T x 1 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 1 x i32>) -> !moe.routing
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %w = moe.input "w" : !moe.tensor<32 x 32 x i8>
    %s = moe.input "s" : !moe.tensor<1 x 32 x f32>
    // expected-error@+1 {{node 'product' rounds its weight, which is [32 x 32 x i8], expected bf16}}
    %y = moe.gmm "product"(%x, %w) weight_scale(%s)
        : (!moe.tensor<T x 32 x bf16>, !moe.tensor<32 x 32 x i8>, !moe.tensor<1 x 32 x f32>) -> !moe.tensor<T x 32 x bf16>
    moe.output "y", %y : !moe.tensor<T x 32 x bf16>
  }
}
