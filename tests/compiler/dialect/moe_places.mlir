// Spare places of experts: the dimension of weights counts places.
// RUN: sluice-opt %s | FileCheck %s
// RUN: sluice-opt %s | sluice-opt | FileCheck %s
// RUN: sluice-opt %s --mlir-print-op-generic | sluice-opt | FileCheck %s

// CHECK: moe.graph @g ranks = 2 experts = 6 spare = 2 top_k = 2 max_tokens = 8 symbols {} {
moe.graph @g ranks = 2 experts = 6 spare = 2 top_k = 2 max_tokens = 8 symbols {} {
  moe.entry @e {
    %ids = moe.input "ids" : !moe.tensor<T x 2 x i32>
    %places = moe.input "places" : !moe.tensor<6 x i32>
    // CHECK: moe.route "route"(%ids) placement(%places) : (!moe.tensor<T x 2 x i32>, !moe.tensor<6 x i32>) -> !moe.routing
    %r = moe.route "route"(%ids) placement(%places) : (!moe.tensor<T x 2 x i32>, !moe.tensor<6 x i32>) -> !moe.routing
  }
}
