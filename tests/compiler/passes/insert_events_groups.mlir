// Families of slots and of groups of slots: a group waits for all of its slots, a slot for its group, an expert
// for all of its groups.
// RUN: sluice-opt %s --insert-events --assign-cores --order-queues | FileCheck %s

// CHECK-DAG: task.event "group_rows" space groups counts rows until rows_of_slot(0) remote
// CHECK-DAG: task.event "up_done" space groups counts tasks until constant(2)
// CHECK-DAG: task.event "group_act" space groups counts tasks until slots_of_group(1)
// CHECK-DAG: task.event "down_done" space groups counts tasks until constant(1)
// CHECK-DAG: task.event "expert_up" space experts counts tasks until groups_of_expert(2)
// CHECK: "dispatch" {{.*}} signals ["group_rows"]
// CHECK: "up" {{.*}} waits ["group_rows"] signals ["up_done", "expert_up"]
// CHECK: "act" {{.*}} waits ["up_done"] signals ["group_act"]
// CHECK: "grad" {{.*}} waits ["expert_up"]
// CHECK: "down" {{.*}} waits ["group_act"] signals ["down_done"]
// CHECK: "combine.return" {{.*}} waits ["down_done"]
// CHECK: task.lane "up" on "groups"
task.program "p" ranks = 1 experts = 4 top_k = 2 max_tokens = 64 cores = 2 target "cpu" symbols {} {
  task.space tokens "tokens" slot = 8 window = 1
  task.space rows "rows" slot = 16 window = 2
  task.space sends "sends" slot = 16 window = 1
  task.space returns "returns" slot = 16 window = 1
  task.space experts "experts" slot = 1 window = 1
  task.space groups "groups" slot = 32 window = 1
  task.buffer input "x" : [T, 32] bf16
  task.buffer input "ids" : [T, 2] i32
  task.buffer input "w" : [4, 32, 32] bf16
  task.buffer input "wd" : [4, 16, 32] bf16
  task.buffer temp "rows" : [R, 32] bf16
  task.buffer temp "up" : [R, 32] bf16
  task.buffer temp "act" : [R, 16] bf16
  task.buffer temp "down" : [R, 32] bf16
  task.buffer temp "back" : [P, 32] bf16
  task.buffer output "y" : [T, 32] bf16
  task.buffer output "dw" : [4, 32, 32] f32
  task.entry "forward" ids "ids" {
    task.family dispatch "dispatch" on "sends" tiles = 1 <n = 32> core unified reads ["x", ""] writes ["rows", ""]
    task.family gmm "up" on "groups" tiles = 2 <n = 32, k = 32, tile_n = 16> core unified reads ["rows", "w"] writes ["up"]
    task.family activation "act" on "rows" tiles = 1 <n = 16> core unified reads ["up"] writes ["act"]
    task.family gmm_weight_grad "grad" on "experts" tiles = 1 <m = 32, n = 32, tile_m = 32, tile_n = 32> core unified reads ["rows", "up", ""] writes ["dw"]
    task.family gmm "down" on "groups" tiles = 1 <n = 32, k = 16, tile_n = 32> core unified reads ["act", "wd"] writes ["down"]
    task.family combine_return "combine.return" on "returns" tiles = 1 <n = 32> core unified reads ["down", ""] writes ["back", ""]
    task.family combine_sum "combine.sum" on "tokens" tiles = 1 <n = 32, k = 2> core unified reads ["back", "", ""] writes ["y", ""]
  }
}
