// Where matrix and vector cores are apart, a lane is for the cores of its family's kind: all of them, or, where some
// vector cores only communicate, those for sends and returns and the others for all else.
// RUN: sluice-opt %s --assign-cores | FileCheck %s --check-prefixes=CHECK,ALL
// RUN: sluice-opt %s --pass-pipeline='builtin.module(task.program(assign-cores{communication-cores=1}))' | FileCheck %s --check-prefixes=CHECK,SOME

// CHECK: task.program "p" {{.*}} cores = 0 cube = 2 vector = 3 target "ascend"
// ALL: task.lane "dispatch" on "sends" core vector runs {{\[}}"dispatch"] priority = 0 rotation = 1 seats {{\[}}array<i32: 0, 0, 0>, array<i32>, array<i32>]
// SOME: task.lane "dispatch" on "sends" core vector runs {{\[}}"dispatch"] priority = 0 rotation = 0 seats {{\[}}array<i32: 0, 0, 0>]
// CHECK-NEXT: task.lane "up" on "rows" core cube runs {{\[}}"up"] priority = 0 rotation = 0 seats {{\[}}array<i32: 0, 0, 0, 0, 0, 2, 0, 1, 1>, array<i32: 0, 0, 1, 0, 1, 0, 0, 1, 2>]
// CHECK-NEXT: task.lane "grad" on "experts" core cube runs {{\[}}"grad"] priority = 0 rotation = 1 seats {{\[}}array<i32: 0, 0, 0>, array<i32>]
// CHECK-NEXT: task.lane "down" on "rows" core cube runs {{.*}} seats {{\[}}array<i32: 0, 0, 0, 0, 1, 0>, array<i32: 0, 0, 1, 0, 1, 1>]
// ALL-NEXT: task.lane "combine.return" on "returns" core vector runs {{.*}} rotation = 1 seats {{\[}}array<i32: 0, 0, 0>, array<i32>, array<i32>]
// SOME-NEXT: task.lane "combine.return" on "returns" core vector runs {{.*}} rotation = 0 seats {{\[}}array<i32: 0, 0, 0>]
// ALL-NEXT: task.lane "combine.sum" on "tokens" core vector runs {{.*}} rotation = 1 seats {{\[}}array<i32: 0, 0, 0>, array<i32>, array<i32>]
// SOME-NEXT: task.lane "combine.sum" on "tokens" core vector from 1 runs {{.*}} rotation = 1 seats {{\[}}array<i32: 0, 0, 0>, array<i32>]
task.program "p" ranks = 1 experts = 4 top_k = 2 max_tokens = 64 cores = 0 cube = 2 vector = 3 target "ascend" symbols {} {
  task.space tokens "tokens" slot = 8 window = 1
  task.space rows "rows" slot = 16 window = 2
  task.space sends "sends" slot = 16 window = 1
  task.space returns "returns" slot = 16 window = 1
  task.space experts "experts" slot = 1 window = 1
  task.buffer input "x" : [T, 32] bf16
  task.buffer input "ids" : [T, 2] i32
  task.buffer input "w" : [4, 32, 48] bf16
  task.buffer input "wd" : [4, 48, 32] bf16
  task.buffer temp "rows" : [R, 32] bf16
  task.buffer temp "up" : [R, 48] bf16
  task.buffer temp "down" : [R, 32] bf16
  task.buffer temp "back" : [P, 32] bf16
  task.buffer output "y" : [T, 32] bf16
  task.buffer output "dw" : [4, 32, 48] f32
  task.entry "forward" ids "ids" {
    task.event "rows_arrived" space rows counts rows until rows_of_slot(0) remote
    task.event "up_done" space rows counts tasks until constant(3)
    task.event "expert_up" space experts counts tasks until slots_of_expert(3)
    task.event "down_done" space rows counts tasks until constant(2)
    task.event "returned" space one counts rows until valid_pairs(0) remote
    task.family dispatch "dispatch" on "sends" tiles = 1 <n = 32> core vector reads ["x", ""] writes ["rows", ""] signals ["rows_arrived"]
    task.family gmm "up" on "rows" tiles = 3 <n = 48, k = 32, tile_n = 16> core cube reads ["rows", "w"] writes ["up"] waits ["rows_arrived"] signals ["up_done", "expert_up"]
    task.family gmm_weight_grad "grad" on "experts" tiles = 1 <m = 32, n = 48, tile_m = 32, tile_n = 48> core cube reads ["rows", "up", ""] writes ["dw"] waits ["expert_up"]
    task.family gmm "down" on "rows" tiles = 2 <n = 32, k = 48, tile_n = 16> core cube reads ["up", "wd"] writes ["down"] waits ["up_done"] signals ["down_done"]
    task.family combine_return "combine.return" on "returns" tiles = 1 <n = 32> core vector reads ["down", ""] writes ["back", ""] waits ["down_done"] signals ["returned"]
    task.family combine_sum "combine.sum" on "tokens" tiles = 1 <n = 32, k = 2> core vector reads ["back", "", ""] writes ["y", ""] waits ["returned"]
  }
}
