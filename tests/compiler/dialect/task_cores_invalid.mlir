// Cores that a program cannot have, and lanes on cores that it has not.
// RUN: sluice-opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{cores beside cube and vector cores is 2, expected 0 to 0}}
task.program "p" ranks = 1 experts = 4 top_k = 2 max_tokens = 64 cores = 2 cube = 1 vector = 1 target "cpu" symbols {} {
}

// -----

// expected-error @+1 {{vector cores is 0, expected 1 to 4096}}
task.program "p" ranks = 1 experts = 4 top_k = 2 max_tokens = 64 cores = 0 cube = 1 vector = 0 target "cpu" symbols {} {
}

// -----

task.program "p" ranks = 1 experts = 4 top_k = 2 max_tokens = 64 cores = 0 cube = 1 vector = 3 target "cpu" symbols {} {
  task.space rows "rows" slot = 16 window = 2
  task.buffer input "ids" : [T, 2] i32
  task.entry "forward" ids "ids" {
    task.family activation "act" on "rows" tiles = 1 <n = 48> core vector reads [] writes []
    // expected-error @+1 {{has 2 seats from core 2 on, but the program has 3 vector cores}}
    task.lane "act" on "rows" core vector from 2 runs ["act"] priority = 0 rotation = 0 seats [array<i32: 0, 0, 0>, array<i32: 0, 1, 0>]
  }
}
