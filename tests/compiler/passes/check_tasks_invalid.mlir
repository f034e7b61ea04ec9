// RUN: sluice-opt %s --check-tasks --split-input-file -verify-diagnostics

task.program "p" ranks = 1 experts = 4 top_k = 2 max_tokens = 64 cores = 2 target "cpu" symbols {} {
  task.space tokens "tokens" slot = 8 window = 1
  task.space rows "rows" slot = 16 window = 2
  task.space sends "sends" slot = 16 window = 1
  task.space returns "returns" slot = 16 window = 1
  task.space experts "experts" slot = 1 window = 1
  task.region "up" R stride = 128
  task.region "rows" R stride = 64 symmetric
  task.region "down" R stride = 64
  task.region "back" P stride = 64 symmetric
  task.buffer input "x" : [T, 32] bf16
  task.buffer input "ids" : [T, 2] i32
  task.buffer input "w" : [4, 32, 48] bf16
  task.buffer input "wd" : [4, 48, 32] bf16
  task.buffer temp "rows" : [R, 32] bf16 in "rows"
  task.buffer temp "up" : [R, 48] bf16 in "up"
  task.buffer temp "down" : [R, 32] bf16 in "down"
  task.buffer temp "back" : [P, 32] bf16 in "back"
  task.buffer output "y" : [T, 32] bf16
  task.buffer output "dw" : [4, 32, 48] f32
  task.entry "forward" ids "ids" {
    task.event "rows_arrived" space rows counts rows until rows_of_slot(0) remote
    task.event "up_done" space rows counts tasks until constant(3)
    task.event "expert_up" space experts counts tasks until slots_of_expert(3)
    task.event "down_done" space rows counts tasks until constant(2)
    task.event "returned" space one counts rows until valid_pairs(0) remote
    task.family dispatch "dispatch" on "sends" tiles = 1 <n = 32> core unified reads ["x", ""] writes ["rows", ""] signals ["rows_arrived"]
    // expected-error @+1 {{family 'up' is not dealt completely}}
    task.family gmm "up" on "rows" tiles = 3 <n = 48, k = 32, tile_n = 16> core unified reads ["rows", "w"] writes ["up"] waits ["rows_arrived"] signals ["up_done", "expert_up"]
    task.family gmm_weight_grad "grad" on "experts" tiles = 1 <m = 32, n = 48, tile_m = 32, tile_n = 48> core unified reads ["rows", "up", ""] writes ["dw"] waits ["expert_up"]
    task.family gmm "down" on "rows" tiles = 2 <n = 32, k = 48, tile_n = 16> core unified reads ["up", "wd"] writes ["down"] waits ["up_done"] signals ["down_done"]
    task.family combine_return "combine.return" on "returns" tiles = 1 <n = 32> core unified reads ["down", ""] writes ["back", ""] waits ["down_done"] signals ["returned"]
    task.family combine_sum "combine.sum" on "tokens" tiles = 1 <n = 32, k = 2> core unified reads ["back", "", ""] writes ["y", ""] waits ["returned"]
    task.lane "dispatch" on "sends" core unified runs ["dispatch"] priority = 0 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
    task.lane "up" on "rows" core unified runs ["up"] priority = 4 rotation = 0 seats [array<i32: 0, 0, 0, 0, 0, 2, 0, 1, 1>, array<i32: 0, 0, 1, 0, 1, 0>]
    task.lane "grad" on "experts" core unified runs ["grad"] priority = 5 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
    task.lane "down" on "rows" core unified runs ["down"] priority = 3 rotation = 0 seats [array<i32: 0, 0, 0, 0, 1, 0>, array<i32: 0, 0, 1, 0, 1, 1>]
    task.lane "combine.return" on "returns" core unified runs ["combine.return"] priority = 1 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
    task.lane "combine.sum" on "tokens" core unified runs ["combine.sum"] priority = 2 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
  }
}

// -----

task.program "p" ranks = 1 experts = 4 top_k = 2 max_tokens = 64 cores = 2 target "cpu" symbols {} {
  task.space tokens "tokens" slot = 8 window = 1
  task.space rows "rows" slot = 16 window = 2
  task.space sends "sends" slot = 16 window = 1
  task.space returns "returns" slot = 16 window = 1
  task.space experts "experts" slot = 1 window = 1
  task.region "up" R stride = 128
  task.region "rows" R stride = 64 symmetric
  task.region "down" R stride = 64
  task.region "back" P stride = 64 symmetric
  task.buffer input "x" : [T, 32] bf16
  task.buffer input "ids" : [T, 2] i32
  task.buffer input "w" : [4, 32, 48] bf16
  task.buffer input "wd" : [4, 48, 32] bf16
  task.buffer temp "rows" : [R, 32] bf16 in "rows"
  task.buffer temp "up" : [R, 48] bf16 in "up"
  task.buffer temp "down" : [R, 32] bf16 in "down"
  task.buffer temp "back" : [P, 32] bf16 in "back"
  task.buffer output "y" : [T, 32] bf16
  task.buffer output "dw" : [4, 32, 48] f32
  task.entry "forward" ids "ids" {
    task.event "rows_arrived" space rows counts rows until rows_of_slot(0) remote
    task.event "up_done" space rows counts tasks until constant(3)
    task.event "expert_up" space experts counts tasks until slots_of_expert(3)
    task.event "down_done" space rows counts tasks until constant(2)
    task.event "returned" space one counts rows until valid_pairs(0) remote
    task.family dispatch "dispatch" on "sends" tiles = 1 <n = 32> core unified reads ["x", ""] writes ["rows", ""] signals ["rows_arrived"]
    // expected-error @+1 {{task (1, 1) of family 'up' is dealt twice}}
    task.family gmm "up" on "rows" tiles = 3 <n = 48, k = 32, tile_n = 16> core unified reads ["rows", "w"] writes ["up"] waits ["rows_arrived"] signals ["up_done", "expert_up"]
    task.family gmm_weight_grad "grad" on "experts" tiles = 1 <m = 32, n = 48, tile_m = 32, tile_n = 48> core unified reads ["rows", "up", ""] writes ["dw"] waits ["expert_up"]
    task.family gmm "down" on "rows" tiles = 2 <n = 32, k = 48, tile_n = 16> core unified reads ["up", "wd"] writes ["down"] waits ["up_done"] signals ["down_done"]
    task.family combine_return "combine.return" on "returns" tiles = 1 <n = 32> core unified reads ["down", ""] writes ["back", ""] waits ["down_done"] signals ["returned"]
    task.family combine_sum "combine.sum" on "tokens" tiles = 1 <n = 32, k = 2> core unified reads ["back", "", ""] writes ["y", ""] waits ["returned"]
    task.lane "dispatch" on "sends" core unified runs ["dispatch"] priority = 0 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
    task.lane "up" on "rows" core unified runs ["up"] priority = 4 rotation = 0 seats [array<i32: 0, 0, 0, 0, 0, 2, 0, 1, 1, 0, 1, 1>, array<i32: 0, 0, 1, 0, 1, 0, 0, 1, 2>]
    task.lane "grad" on "experts" core unified runs ["grad"] priority = 5 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
    task.lane "down" on "rows" core unified runs ["down"] priority = 3 rotation = 0 seats [array<i32: 0, 0, 0, 0, 1, 0>, array<i32: 0, 0, 1, 0, 1, 1>]
    task.lane "combine.return" on "returns" core unified runs ["combine.return"] priority = 1 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
    task.lane "combine.sum" on "tokens" core unified runs ["combine.sum"] priority = 2 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
  }
}

// -----

// expected-error @+1 {{no family waits for event 'expert_up'}}
task.program "p" ranks = 1 experts = 4 top_k = 2 max_tokens = 64 cores = 2 target "cpu" symbols {} {
  task.space tokens "tokens" slot = 8 window = 1
  task.space rows "rows" slot = 16 window = 2
  task.space sends "sends" slot = 16 window = 1
  task.space returns "returns" slot = 16 window = 1
  task.space experts "experts" slot = 1 window = 1
  task.region "up" R stride = 128
  task.region "rows" R stride = 64 symmetric
  task.region "down" R stride = 64
  task.region "back" P stride = 64 symmetric
  task.buffer input "x" : [T, 32] bf16
  task.buffer input "ids" : [T, 2] i32
  task.buffer input "w" : [4, 32, 48] bf16
  task.buffer input "wd" : [4, 48, 32] bf16
  task.buffer temp "rows" : [R, 32] bf16 in "rows"
  task.buffer temp "up" : [R, 48] bf16 in "up"
  task.buffer temp "down" : [R, 32] bf16 in "down"
  task.buffer temp "back" : [P, 32] bf16 in "back"
  task.buffer output "y" : [T, 32] bf16
  task.buffer output "dw" : [4, 32, 48] f32
  task.entry "forward" ids "ids" {
    task.event "rows_arrived" space rows counts rows until rows_of_slot(0) remote
    task.event "up_done" space rows counts tasks until constant(3)
    task.event "expert_up" space experts counts tasks until slots_of_expert(3)
    task.event "down_done" space rows counts tasks until constant(2)
    task.event "returned" space one counts rows until valid_pairs(0) remote
    task.family dispatch "dispatch" on "sends" tiles = 1 <n = 32> core unified reads ["x", ""] writes ["rows", ""] signals ["rows_arrived"]
    task.family gmm "up" on "rows" tiles = 3 <n = 48, k = 32, tile_n = 16> core unified reads ["rows", "w"] writes ["up"] waits ["rows_arrived"] signals ["up_done", "expert_up"]
    task.family gmm_weight_grad "grad" on "experts" tiles = 1 <m = 32, n = 48, tile_m = 32, tile_n = 48> core unified reads ["rows", "up", ""] writes ["dw"]
    task.family gmm "down" on "rows" tiles = 2 <n = 32, k = 48, tile_n = 16> core unified reads ["up", "wd"] writes ["down"] waits ["up_done"] signals ["down_done"]
    task.family combine_return "combine.return" on "returns" tiles = 1 <n = 32> core unified reads ["down", ""] writes ["back", ""] waits ["down_done"] signals ["returned"]
    task.family combine_sum "combine.sum" on "tokens" tiles = 1 <n = 32, k = 2> core unified reads ["back", "", ""] writes ["y", ""] waits ["returned"]
    task.lane "dispatch" on "sends" core unified runs ["dispatch"] priority = 0 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
    task.lane "up" on "rows" core unified runs ["up"] priority = 4 rotation = 0 seats [array<i32: 0, 0, 0, 0, 0, 2, 0, 1, 1>, array<i32: 0, 0, 1, 0, 1, 0, 0, 1, 2>]
    task.lane "grad" on "experts" core unified runs ["grad"] priority = 5 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
    task.lane "down" on "rows" core unified runs ["down"] priority = 3 rotation = 0 seats [array<i32: 0, 0, 0, 0, 1, 0>, array<i32: 0, 0, 1, 0, 1, 1>]
    task.lane "combine.return" on "returns" core unified runs ["combine.return"] priority = 1 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
    task.lane "combine.sum" on "tokens" core unified runs ["combine.sum"] priority = 2 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
  }
}

// -----

// expected-error @+1 {{buffer 'down' has no region}}
task.program "p" ranks = 1 experts = 4 top_k = 2 max_tokens = 64 cores = 2 target "cpu" symbols {} {
  task.space tokens "tokens" slot = 8 window = 1
  task.space rows "rows" slot = 16 window = 2
  task.space sends "sends" slot = 16 window = 1
  task.space returns "returns" slot = 16 window = 1
  task.space experts "experts" slot = 1 window = 1
  task.region "up" R stride = 128
  task.region "rows" R stride = 64 symmetric
  task.region "down" R stride = 64
  task.region "back" P stride = 64 symmetric
  task.buffer input "x" : [T, 32] bf16
  task.buffer input "ids" : [T, 2] i32
  task.buffer input "w" : [4, 32, 48] bf16
  task.buffer input "wd" : [4, 48, 32] bf16
  task.buffer temp "rows" : [R, 32] bf16 in "rows"
  task.buffer temp "up" : [R, 48] bf16 in "up"
  task.buffer temp "down" : [R, 32] bf16
  task.buffer temp "back" : [P, 32] bf16 in "back"
  task.buffer output "y" : [T, 32] bf16
  task.buffer output "dw" : [4, 32, 48] f32
  task.entry "forward" ids "ids" {
    task.event "rows_arrived" space rows counts rows until rows_of_slot(0) remote
    task.event "up_done" space rows counts tasks until constant(3)
    task.event "expert_up" space experts counts tasks until slots_of_expert(3)
    task.event "down_done" space rows counts tasks until constant(2)
    task.event "returned" space one counts rows until valid_pairs(0) remote
    task.family dispatch "dispatch" on "sends" tiles = 1 <n = 32> core unified reads ["x", ""] writes ["rows", ""] signals ["rows_arrived"]
    task.family gmm "up" on "rows" tiles = 3 <n = 48, k = 32, tile_n = 16> core unified reads ["rows", "w"] writes ["up"] waits ["rows_arrived"] signals ["up_done", "expert_up"]
    task.family gmm_weight_grad "grad" on "experts" tiles = 1 <m = 32, n = 48, tile_m = 32, tile_n = 48> core unified reads ["rows", "up", ""] writes ["dw"] waits ["expert_up"]
    task.family gmm "down" on "rows" tiles = 2 <n = 32, k = 48, tile_n = 16> core unified reads ["up", "wd"] writes ["down"] waits ["up_done"] signals ["down_done"]
    task.family combine_return "combine.return" on "returns" tiles = 1 <n = 32> core unified reads ["down", ""] writes ["back", ""] waits ["down_done"] signals ["returned"]
    task.family combine_sum "combine.sum" on "tokens" tiles = 1 <n = 32, k = 2> core unified reads ["back", "", ""] writes ["y", ""] waits ["returned"]
    task.lane "dispatch" on "sends" core unified runs ["dispatch"] priority = 0 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
    task.lane "up" on "rows" core unified runs ["up"] priority = 4 rotation = 0 seats [array<i32: 0, 0, 0, 0, 0, 2, 0, 1, 1>, array<i32: 0, 0, 1, 0, 1, 0, 0, 1, 2>]
    task.lane "grad" on "experts" core unified runs ["grad"] priority = 5 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
    task.lane "down" on "rows" core unified runs ["down"] priority = 3 rotation = 0 seats [array<i32: 0, 0, 0, 0, 1, 0>, array<i32: 0, 0, 1, 0, 1, 1>]
    task.lane "combine.return" on "returns" core unified runs ["combine.return"] priority = 1 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
    task.lane "combine.sum" on "tokens" core unified runs ["combine.sum"] priority = 2 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
  }
}

// -----

// expected-error @+1 {{no family signals event 'returned'}}
task.program "p" ranks = 1 experts = 4 top_k = 2 max_tokens = 64 cores = 2 target "cpu" symbols {} {
  task.space tokens "tokens" slot = 8 window = 1
  task.space rows "rows" slot = 16 window = 2
  task.space sends "sends" slot = 16 window = 1
  task.space returns "returns" slot = 16 window = 1
  task.space experts "experts" slot = 1 window = 1
  task.region "up" R stride = 128
  task.region "rows" R stride = 64 symmetric
  task.region "down" R stride = 64
  task.region "back" P stride = 64 symmetric
  task.buffer input "x" : [T, 32] bf16
  task.buffer input "ids" : [T, 2] i32
  task.buffer input "w" : [4, 32, 48] bf16
  task.buffer input "wd" : [4, 48, 32] bf16
  task.buffer temp "rows" : [R, 32] bf16 in "rows"
  task.buffer temp "up" : [R, 48] bf16 in "up"
  task.buffer temp "down" : [R, 32] bf16 in "down"
  task.buffer temp "back" : [P, 32] bf16 in "back"
  task.buffer output "y" : [T, 32] bf16
  task.buffer output "dw" : [4, 32, 48] f32
  task.entry "forward" ids "ids" {
    task.event "rows_arrived" space rows counts rows until rows_of_slot(0) remote
    task.event "up_done" space rows counts tasks until constant(3)
    task.event "expert_up" space experts counts tasks until slots_of_expert(3)
    task.event "down_done" space rows counts tasks until constant(2)
    task.event "returned" space one counts rows until valid_pairs(0) remote
    task.family dispatch "dispatch" on "sends" tiles = 1 <n = 32> core unified reads ["x", ""] writes ["rows", ""] signals ["rows_arrived"]
    task.family gmm "up" on "rows" tiles = 3 <n = 48, k = 32, tile_n = 16> core unified reads ["rows", "w"] writes ["up"] waits ["rows_arrived"] signals ["up_done", "expert_up"]
    task.family gmm_weight_grad "grad" on "experts" tiles = 1 <m = 32, n = 48, tile_m = 32, tile_n = 48> core unified reads ["rows", "up", ""] writes ["dw"] waits ["expert_up"]
    task.family gmm "down" on "rows" tiles = 2 <n = 32, k = 48, tile_n = 16> core unified reads ["up", "wd"] writes ["down"] waits ["up_done"] signals ["down_done"]
    task.family combine_return "combine.return" on "returns" tiles = 1 <n = 32> core unified reads ["down", ""] writes ["back", ""] waits ["down_done"]
    task.family combine_sum "combine.sum" on "tokens" tiles = 1 <n = 32, k = 2> core unified reads ["back", "", ""] writes ["y", ""] waits ["returned"]
    task.lane "dispatch" on "sends" core unified runs ["dispatch"] priority = 0 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
    task.lane "up" on "rows" core unified runs ["up"] priority = 4 rotation = 0 seats [array<i32: 0, 0, 0, 0, 0, 2, 0, 1, 1>, array<i32: 0, 0, 1, 0, 1, 0, 0, 1, 2>]
    task.lane "grad" on "experts" core unified runs ["grad"] priority = 5 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
    task.lane "down" on "rows" core unified runs ["down"] priority = 3 rotation = 0 seats [array<i32: 0, 0, 0, 0, 1, 0>, array<i32: 0, 0, 1, 0, 1, 1>]
    task.lane "combine.return" on "returns" core unified runs ["combine.return"] priority = 1 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
    task.lane "combine.sum" on "tokens" core unified runs ["combine.sum"] priority = 2 rotation = 1 seats [array<i32: 0, 0, 0>, array<i32>]
  }
}
