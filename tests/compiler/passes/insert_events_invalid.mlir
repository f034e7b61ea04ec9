// RUN: sluice-opt %s --insert-events --split-input-file -verify-diagnostics

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
    // expected-note @+1 {{'up' is written here}}
    task.family gmm "up" on "rows" tiles = 3 <n = 48, k = 32, tile_n = 16> core unified reads ["rows", "w"] writes ["up"]
    task.family gmm_weight_grad "grad" on "experts" tiles = 1 <m = 32, n = 48, tile_m = 32, tile_n = 48> core unified reads ["rows", "up", ""] writes ["dw"]
    // expected-error @+1 {{'down' writes 'up', which 'up' already writes}}
    task.family gmm "down" on "rows" tiles = 2 <n = 32, k = 48, tile_n = 16> core unified reads ["up", "wd"] writes ["up"]
    task.family combine_return "combine.return" on "returns" tiles = 1 <n = 32> core unified reads ["down", ""] writes ["back", ""]
    task.family combine_sum "combine.sum" on "tokens" tiles = 1 <n = 32, k = 2> core unified reads ["back", "", ""] writes ["y", ""]
  }
}

// -----

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
    // expected-error @+1 {{'up' reads 'down', which no family before it writes}}
    task.family gmm "up" on "rows" tiles = 3 <n = 48, k = 32, tile_n = 16> core unified reads ["down", "w"] writes ["up"]
    task.family gmm_weight_grad "grad" on "experts" tiles = 1 <m = 32, n = 48, tile_m = 32, tile_n = 48> core unified reads ["rows", "up", ""] writes ["dw"]
    task.family gmm "down" on "rows" tiles = 2 <n = 32, k = 48, tile_n = 16> core unified reads ["up", "wd"] writes ["down"]
    task.family combine_return "combine.return" on "returns" tiles = 1 <n = 32> core unified reads ["down", ""] writes ["back", ""]
    task.family combine_sum "combine.sum" on "tokens" tiles = 1 <n = 32, k = 2> core unified reads ["back", "", ""] writes ["y", ""]
  }
}

// -----

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
    // expected-note @+1 {{the producer is here}}
    task.family gmm "down" on "rows" tiles = 2 <n = 32, k = 48, tile_n = 16> core unified reads ["up", "wd"] writes ["down"]
    task.family combine_return "combine.return" on "returns" tiles = 1 <n = 32> core unified reads ["down", ""] writes ["back", ""]
    // expected-error @+1 {{'combine.sum' reads what 'down' writes, but no event leads from its space to this one}}
    task.family combine_sum "combine.sum" on "tokens" tiles = 1 <n = 32, k = 2> core unified reads ["down", "", ""] writes ["y", ""]
  }
}
