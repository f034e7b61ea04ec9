// RUN: not sluicec %s --stop-after=form-tasks 2>&1 | FileCheck %s

// CHECK: {{form_tasks_invalid.mlir.*}}: error: has 2 moe.graph ops, expected one
moe.graph @a ranks = 1 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
  }
}
moe.graph @b ranks = 1 experts = 4 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
  }
}
