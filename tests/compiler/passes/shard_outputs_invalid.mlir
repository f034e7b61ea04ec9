// What an output of rows declares is what its node writes.
// RUN: not sluicec %s -o %t.slp 2>&1 | FileCheck %s
// RUN: sed 's/shard gate_up_columns : !moe.tensor<R/shard columns : !moe.tensor<R/' %s > %t.right.mlir
// RUN: sluicec %t.right.mlir --emit=program-text | FileCheck %s --check-prefix=RIGHT

// RIGHT: buffer y : BF16 [R, 40] output shard columns in y

moe.graph @outputs ranks = 2 tp = 2 experts = 1 top_k = 1 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 32 x bf16>
    %w = moe.input "w" shard columns : !moe.tensor<1 x 32 x 40 x bf16>
    %r = moe.route "route" : () -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) {tensors = ["rows"]}
        : (!moe.tensor<T x 32 x bf16>, !moe.routing) -> !moe.tensor<R x 32 x bf16>
    // CHECK: shard_outputs_invalid.mlir:[[#@LINE+1]]:10: error: node 'up' writes output 'y', columns at each of 2 ranks, but the graph declares it as gate_up_columns
    %y = moe.gmm "up"(%rows, %w) {tensors = ["y"]}
        : (!moe.tensor<R x 32 x bf16>, !moe.tensor<1 x 32 x 40 x bf16>) -> !moe.tensor<R x 40 x bf16>
    moe.output "y", %y shard gate_up_columns : !moe.tensor<R x 40 x bf16>
  }
}
