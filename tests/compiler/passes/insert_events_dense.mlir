// A dense branch beside the routed one: families of tokens wait slot by slot, a sum over tokens for all slots.
// RUN: sluice-opt %s --insert-events --order-queues | FileCheck %s

// CHECK-DAG: task.event "all_act" space one counts tasks until slots_of_tokens(1)
// CHECK-DAG: task.event "dense_done" space tokens counts tasks until constant(3)
// CHECK-DAG: task.event "act_done" space tokens counts tasks until constant(1)
// CHECK-DAG: task.event "combine.sum_done" space tokens counts tasks until constant(1)
// CHECK: "dense" {{.*}} signals ["dense_done"]
// CHECK: "act" {{.*}} waits ["dense_done"] signals [{{.*}}]
// CHECK: "grad" {{.*}} waits ["all_act"]
// CHECK: "combine.sum" {{.*}} waits ["returned"] signals ["combine.sum_done"]
// CHECK: "sum" {{.*}} waits ["combine.sum_done", "act_done"]
task.program "p" ranks = 1 experts = 4 top_k = 2 max_tokens = 64 cores = 2 target "cpu" symbols {} {
  task.space tokens "tokens" slot = 8 window = 1
  task.space rows "rows" slot = 16 window = 2
  task.space sends "sends" slot = 16 window = 1
  task.space returns "returns" slot = 16 window = 1
  task.space once "once" slot = 1 window = 1
  task.buffer input "x" : [T, 32] bf16
  task.buffer input "ids" : [T, 2] i32
  task.buffer input "w" : [32, 64] bf16
  task.buffer temp "dense" : [T, 64] bf16
  task.buffer temp "act" : [T, 32] bf16
  task.buffer temp "rows" : [R, 32] bf16
  task.buffer temp "back" : [P, 32] bf16
  task.buffer temp "routed" : [T, 32] bf16
  task.buffer output "y" : [T, 32] bf16
  task.buffer output "dw" : [32, 32] f32
  task.entry "forward" ids "ids" {
    task.family dispatch "dispatch" on "sends" tiles = 1 <n = 32> core unified reads ["x", ""] writes ["rows", ""]
    task.family gmm "dense" on "tokens" tiles = 3 <n = 64, k = 32, tile_n = 22> core unified reads ["x", "w"] writes ["dense"]
    task.family activation "act" on "tokens" tiles = 1 <n = 32> core unified reads ["dense"] writes ["act"]
    task.family gmm_weight_grad "grad" on "once" tiles = 1 <m = 32, n = 32, tile_m = 32, tile_n = 32> core unified reads ["x", "act", ""] writes ["dw"]
    task.family combine_return "combine.return" on "returns" tiles = 1 <n = 32> core unified reads ["rows", ""] writes ["back", ""]
    task.family combine_sum "combine.sum" on "tokens" tiles = 1 <n = 32, k = 2> core unified reads ["back", "", ""] writes ["routed", ""]
    task.family add "sum" on "tokens" tiles = 1 <n = 32> core unified reads ["act", "routed"] writes ["y"]
  }
}
