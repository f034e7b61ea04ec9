// Events follow from the spaces of who writes and who reads; a wait that another covers is left out: grad reads
// "rows" too, but up, which it waits for, has waited for them.
// RUN: sluice-opt %s --insert-events | FileCheck %s

// CHECK: task.event "rows_arrived" space rows counts rows until rows_of_slot(0) remote
// CHECK-NEXT: task.event "expert_up" space experts counts tasks until slots_of_expert(3)
// CHECK-NEXT: task.event "up_done" space rows counts tasks until constant(3)
// CHECK-NEXT: task.event "down_done" space rows counts tasks until constant(2)
// CHECK-NEXT: task.event "returned" space one counts rows until valid_pairs(0) remote
// CHECK: "dispatch" {{.*}} writes ["rows", ""] signals ["rows_arrived"]
// CHECK: "up" {{.*}} writes ["up"] waits ["rows_arrived"] signals ["expert_up", "up_done"]
// CHECK: "grad" {{.*}} writes ["dw"] waits ["expert_up"]
// CHECK-NOT: signals
// CHECK: "down" {{.*}} writes ["down"] waits ["up_done"] signals ["down_done"]
// CHECK: "combine.return" {{.*}} writes ["back", ""] waits ["down_done"] signals ["returned"]
// CHECK: "combine.sum" {{.*}} writes ["y", ""] waits ["returned"]
task.program "p" ranks = 1 experts = 4 top_k = 2 max_tokens = 64 cores = 2 target "cpu" symbols {} {
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
    task.family dispatch "dispatch" on "sends" tiles = 1 <n = 32> core unified reads ["x", ""] writes ["rows", ""]
    task.family gmm "up" on "rows" tiles = 3 <n = 48, k = 32, tile_n = 16> core unified reads ["rows", "w"] writes ["up"]
    task.family gmm_weight_grad "grad" on "experts" tiles = 1 <m = 32, n = 48, tile_m = 32, tile_n = 48> core unified reads ["rows", "up", ""] writes ["dw"]
    task.family gmm "down" on "rows" tiles = 2 <n = 32, k = 48, tile_n = 16> core unified reads ["up", "wd"] writes ["down"]
    task.family combine_return "combine.return" on "returns" tiles = 1 <n = 32> core unified reads ["down", ""] writes ["back", ""]
    task.family combine_sum "combine.sum" on "tokens" tiles = 1 <n = 32, k = 2> core unified reads ["back", "", ""] writes ["y", ""]
  }
}
