// Widths that do not fit the inputs of an activation.
// RUN: sluice-opt %s --split-input-file --verify-diagnostics

moe.graph @g ranks = 1 experts = 4 top_k = 1 max_tokens = 1 symbols {} {
  moe.entry @e {
    %x = moe.input "x" : !moe.tensor<T x 64 x bf16>
    // expected-error@+1 {{node 'act': act is [T x 32 x bf16], expected [T x I x bf16] with I = 64 (gate_up), where kind 'silu' has no gate}}
    %a = moe.activation "act" silu(%x) : (!moe.tensor<T x 64 x bf16>) -> !moe.tensor<T x 32 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 4 top_k = 1 max_tokens = 1 symbols {} {
  moe.entry @e {
    %x = moe.input "x" : !moe.tensor<T x 64 x bf16>
    // expected-error@+1 {{node 'act': act is [T x 64 x bf16], expected [T x I x bf16] with I = 32 (gate_up)}}
    %a = moe.activation "act" swiglu(%x) : (!moe.tensor<T x 64 x bf16>) -> !moe.tensor<T x 64 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 4 top_k = 1 max_tokens = 1 symbols {} {
  moe.entry @e {
    %x = moe.input "x" : !moe.tensor<T x 64 x bf16>
    // expected-error@+1 {{node 'act' of kind 'relu2' has a limit, expected none}}
    %a = moe.activation "act" relu2(%x) limit 7.0 : (!moe.tensor<T x 64 x bf16>) -> !moe.tensor<T x 64 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 4 top_k = 1 max_tokens = 1 symbols {} {
  moe.entry @e {
    %d = moe.input "d" : !moe.tensor<T x 32 x bf16>
    %x = moe.input "x" : !moe.tensor<T x 64 x bf16>
    // expected-error@+1 {{node 'grad': gate_up is [T x 64 x bf16], expected [T x I x bf16] with I = 32 (act_grad), where kind 'relu2' has no gate}}
    %a = moe.activation_grad "grad" relu2(%d, %x) : (!moe.tensor<T x 32 x bf16>, !moe.tensor<T x 64 x bf16>) -> !moe.tensor<T x 64 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 4 top_k = 1 max_tokens = 1 symbols {} {
  moe.entry @e {
    %x = moe.input "x" : !moe.tensor<T x 64 x bf16>
    %w = moe.input "w" : !moe.tensor<64 x 48 x bf16>
    // expected-error@+1 {{node 'up_act': act is [T x 24 x bf16], expected [T x I x bf16] with I = 48 (weight), where kind 'relu2' has no gate}}
    %a = moe.gmm_activation "up_act" relu2(%x, %w) : (!moe.tensor<T x 64 x bf16>, !moe.tensor<64 x 48 x bf16>) -> !moe.tensor<T x 24 x bf16>
  }
}

// -----

moe.graph @g ranks = 1 experts = 4 top_k = 1 max_tokens = 1 symbols {} {
  moe.entry @e {
    %x = moe.input "x" : !moe.tensor<T x 64 x bf16>
    %w = moe.input "w" : !moe.tensor<64 x 24 x bf16>
    %g = moe.input "g" : !moe.tensor<T x 24 x bf16>
    // expected-error@+1 {{node 'act_grad': gate_up_grad is [T x 48 x bf16], expected [T x I x bf16] with I = 24 (weight), where kind 'silu' has no gate}}
    %a = moe.gmm_activation_grad "act_grad" silu(%x, %w, %g) : (!moe.tensor<T x 64 x bf16>, !moe.tensor<64 x 24 x bf16>, !moe.tensor<T x 24 x bf16>) -> !moe.tensor<T x 48 x bf16>
  }
}
