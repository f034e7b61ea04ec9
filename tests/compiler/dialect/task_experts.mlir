// Experts of a rank, where ranks own different numbers: as a dimension, as an extent of memory, and as a threshold.
// RUN: sluice-opt %s | FileCheck %s
// RUN: sluice-opt %s | sluice-opt | FileCheck %s
// RUN: sluice-opt %s --mlir-print-op-generic | sluice-opt | FileCheck %s
task.program "p" ranks = 2 experts = 5 top_k = 2 max_tokens = 64 cores = 2 target "cpu" symbols {} {
  task.space experts "experts" slot = 1 window = 1
  // CHECK: task.region "made" E stride = 3072
  task.region "made" E stride = 3072
  // CHECK: task.buffer input "w" : [E, 32, 48] bf16
  task.buffer input "w" : [E, 32, 48] bf16
  // CHECK: task.buffer temp "made" : [E, 32, 48] bf16 in "made"
  task.buffer temp "made" : [E, 32, 48] bf16 in "made"
  task.buffer input "ids" : [T, 2] i32
  task.entry "forward" ids "ids" {
    // CHECK: task.event "all_made" space one counts tasks until experts_of_rank(4)
    task.event "all_made" space one counts tasks until experts_of_rank(4)
  }
}
