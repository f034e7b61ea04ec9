// RUN: sluice-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{graph 'g': 6 of 6 places are spare, expected at least one that is not}}
moe.graph @g ranks = 2 experts = 6 spare = 6 top_k = 2 max_tokens = 8 symbols {} {
}

// -----

// expected-error@+1 {{graph 'g': top_k is 5, but there are only 4 experts}}
moe.graph @g ranks = 2 experts = 6 spare = 2 top_k = 5 max_tokens = 8 symbols {} {
}

// -----

moe.graph @g ranks = 2 experts = 6 spare = 2 top_k = 2 max_tokens = 8 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %places = moe.input "places" : !moe.tensor<4 x i32>
    // expected-error@+1 {{node 'route': placement is [4 x i32], expected [places x i32] with places = 6 (experts + spare)}}
    %r = moe.route "route"(%ids) placement(%places) : (!moe.tensor<T x 2 x i32>, !moe.tensor<4 x i32>) -> !moe.routing
  }
}

// -----

moe.graph @g ranks = 2 experts = 6 spare = 2 top_k = 2 max_tokens = 8 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    // expected-error@+1 {{node 'route' has no placement, but the graph has 2 spare places}}
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
  }
}
