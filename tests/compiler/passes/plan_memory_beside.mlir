// A row of "x_rows" and one of "down" are the widest, and each lives with one of "up" or "act" beside it. Regions that hold
// one buffer at a time would take 512 bytes per row; the most that lives at once is 448.
// RUN: sluice-opt %s --plan-memory | FileCheck %s

// CHECK: task.region "down" R stride = 448 symmetric
// CHECK-NEXT: task.region "back" P stride = 256 symmetric
// CHECK: task.buffer temp "x_rows" : [R, 128] bf16 in "down" at 192{{$}}
// CHECK-NEXT: task.buffer temp "up" : [R, 96] bf16 in "down"{{$}}
// CHECK-NEXT: task.buffer temp "act" : [R, 48] bf16 in "down" at 256{{$}}
// CHECK-NEXT: task.buffer temp "down" : [R, 128] bf16 in "down"{{$}}

// A 64th is not worth that rows lie further apart.
// RUN: sed -e 's/R, 96/R, 8192/;s/R, 48/R, 32/;s/n = 96/n = 8192/;s/n = 48/n = 32/' %s | sluice-opt --plan-memory | FileCheck %s --check-prefix=NARROW

// NARROW-NOT: " at {{[0-9]}}
// NARROW: task.buffer temp "x_rows" : [R, 128] bf16 in "x_rows"{{$}}

task.program "p" ranks = 1 experts = 4 top_k = 2 max_tokens = 64 cores = 2 target "cpu" symbols {} {
  task.space tokens "tokens" slot = 8 window = 1
  task.space rows "rows" slot = 16 window = 2
  task.space sends "sends" slot = 16 window = 1
  task.space returns "returns" slot = 16 window = 1
  task.buffer input "x" : [T, 128] bf16
  task.buffer input "ids" : [T, 2] i32
  task.buffer input "w" : [4, 128, 96] bf16
  task.buffer input "wd" : [4, 48, 128] bf16
  task.buffer temp "x_rows" : [R, 128] bf16
  task.buffer temp "up" : [R, 96] bf16
  task.buffer temp "act" : [R, 48] bf16
  task.buffer temp "down" : [R, 128] bf16
  task.buffer temp "back" : [P, 128] bf16
  task.buffer output "y" : [T, 128] bf16
  task.entry "forward" ids "ids" {
    task.event "rows_arrived" space rows counts rows until rows_of_slot(0) remote
    task.event "up_done" space rows counts tasks until constant(1)
    task.event "act_done" space rows counts tasks until constant(1)
    task.event "down_done" space rows counts tasks until constant(1)
    task.event "returned" space one counts rows until valid_pairs(0) remote
    task.family dispatch "dispatch" on "sends" tiles = 1 <n = 128> core unified reads ["x", ""] writes ["x_rows", ""] signals ["rows_arrived"]
    task.family gmm "up" on "rows" tiles = 1 <n = 96, k = 128, tile_n = 96> core unified reads ["x_rows", "w"] writes ["up"] waits ["rows_arrived"] signals ["up_done"]
    task.family activation "act" on "rows" tiles = 1 <n = 48> core unified reads ["up"] writes ["act"] waits ["up_done"] signals ["act_done"]
    task.family gmm "down" on "rows" tiles = 1 <n = 128, k = 48, tile_n = 128> core unified reads ["act", "wd"] writes ["down"] waits ["act_done"] signals ["down_done"]
    task.family combine_return "combine.return" on "returns" tiles = 1 <n = 128> core unified reads ["down", ""] writes ["back", ""] waits ["down_done"] signals ["returned"]
    task.family combine_sum "combine.sum" on "tokens" tiles = 1 <n = 128, k = 2> core unified reads ["back", "", ""] writes ["y", ""] waits ["returned"]
  }
}
