// A layer with all that can be fused: an adapted product with a scale, and a dense branch beside the routed one.
moe.graph @mixed ranks = 3 experts = 6 top_k = 2 max_tokens = 64 symbols {} {
  moe.entry @forward {
    %x = moe.input "x" : !moe.tensor<T x 72 x bf16>
    %ids = moe.input "expert_ids" : !moe.tensor<T x 2 x i32>
    %probs = moe.input "probs" : !moe.tensor<T x 2 x f32>
    %w = moe.input "w" : !moe.tensor<2 x 72 x 112 x bf16>
    %a = moe.input "a" : !moe.tensor<2 x 72 x 8 x bf16>
    %b = moe.input "b" : !moe.tensor<2 x 8 x 112 x bf16>
    %wd = moe.input "wd" : !moe.tensor<2 x 56 x 72 x bf16>
    %dense_up = moe.input "dense_up" : !moe.tensor<72 x 80 x bf16>
    %dense_down = moe.input "dense_down" : !moe.tensor<40 x 72 x bf16>
    %r = moe.route "route"(%ids) : (!moe.tensor<T x 2 x i32>) -> !moe.routing
    %rows = moe.dispatch "dispatch"(%x, %r) : (!moe.tensor<T x 72 x bf16>, !moe.routing) -> !moe.tensor<R x 72 x bf16>
    %base = moe.gmm "up_proj"(%rows, %w) : (!moe.tensor<R x 72 x bf16>, !moe.tensor<2 x 72 x 112 x bf16>) -> !moe.tensor<R x 112 x bf16>
    %low = moe.gmm "low"(%rows, %a) : (!moe.tensor<R x 72 x bf16>, !moe.tensor<2 x 72 x 8 x bf16>) -> !moe.tensor<R x 8 x bf16>
    %high = moe.gmm "high"(%low, %b) : (!moe.tensor<R x 8 x bf16>, !moe.tensor<2 x 8 x 112 x bf16>) -> !moe.tensor<R x 112 x bf16>
    %scaled = moe.scale "lora_scale"(%high) by 2.0 : (!moe.tensor<R x 112 x bf16>) -> !moe.tensor<R x 112 x bf16>
    %gate_up = moe.add "lora_add"(%base, %scaled) : (!moe.tensor<R x 112 x bf16>, !moe.tensor<R x 112 x bf16>) -> !moe.tensor<R x 112 x bf16>
    %act = moe.activation "swiglu" swiglu(%gate_up) : (!moe.tensor<R x 112 x bf16>) -> !moe.tensor<R x 56 x bf16>
    %down = moe.gmm "down_proj"(%act, %wd) : (!moe.tensor<R x 56 x bf16>, !moe.tensor<2 x 56 x 72 x bf16>) -> !moe.tensor<R x 72 x bf16>
    %back = moe.combine "combine"(%down, %r) weights(%probs) : (!moe.tensor<R x 72 x bf16>, !moe.routing, !moe.tensor<T x 2 x f32>) -> !moe.tensor<T x 72 x bf16>
    %dgu = moe.gmm "dense_up"(%x, %dense_up) : (!moe.tensor<T x 72 x bf16>, !moe.tensor<72 x 80 x bf16>) -> !moe.tensor<T x 80 x bf16>
    %dact = moe.activation "dense_act" geglu(%dgu) : (!moe.tensor<T x 80 x bf16>) -> !moe.tensor<T x 40 x bf16>
    %ddown = moe.gmm "dense_down"(%dact, %dense_down) : (!moe.tensor<T x 40 x bf16>, !moe.tensor<40 x 72 x bf16>) -> !moe.tensor<T x 72 x bf16>
    %dhalf = moe.scale "half"(%ddown) by 0.5 : (!moe.tensor<T x 72 x bf16>) -> !moe.tensor<T x 72 x bf16>
    %y = moe.add "sum"(%back, %dhalf) : (!moe.tensor<T x 72 x bf16>, !moe.tensor<T x 72 x bf16>) -> !moe.tensor<T x 72 x bf16>
    moe.output "y", %y : !moe.tensor<T x 72 x bf16>
  }
}
