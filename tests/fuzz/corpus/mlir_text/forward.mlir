module {
  moe.graph @moe_ffn_forward ranks = 1 experts = 64 top_k = 8 max_tokens = 4096 symbols {ep = 1 : i64, experts = 64 : i64, hidden = 2048 : i64, intermediate = 768 : i64, max_tokens = 4096 : i64, top_k = 8 : i64} {
    moe.entry @forward {
      %x = moe.input "x" : !moe.tensor<T x 2048 x bf16>
      %expert_ids = moe.input "expert_ids" : !moe.tensor<T x 8 x i32>
      %expert_weights = moe.input "expert_weights" : !moe.tensor<T x 8 x f32>
      %gate_up_weight = moe.input "gate_up_weight" : !moe.tensor<64 x 2048 x 1536 x bf16>
      %down_weight = moe.input "down_weight" : !moe.tensor<64 x 768 x 2048 x bf16>
      %routing = moe.route "route"(%expert_ids) {tensors = ["routing"]} : (!moe.tensor<T x 8 x i32>) -> !moe.routing
      %rows_x = moe.dispatch "dispatch"(%x, %routing) {reference = {core = "vector", inputs = [["target_offset", 1], ["src", 2], ["src_offset", 3], ["size", 4]], outputs = [["target", 0]], split = {inputs = [], rows = 128 : i64}}, tensors = ["rows_x"]} : (!moe.tensor<T x 2048 x bf16>, !moe.routing) -> !moe.tensor<R x 2048 x bf16>
      %gate_up = moe.gmm "up_proj"(%rows_x, %gate_up_weight) {reference = {core = "cube", inputs = [["target", 0], ["weight", 5], ["glist", 6]], outputs = [["y", 7]], split = {dim = 0 : i64, inputs = [0], rows = 4096 : i64}, tiling = 17 : i64}, tensors = ["gate_up"]} : (!moe.tensor<R x 2048 x bf16>, !moe.tensor<64 x 2048 x 1536 x bf16>) -> !moe.tensor<R x 1536 x bf16>
      %act = moe.activation "swiglu"  swiglu(%gate_up) {reference = {core = "vector", inputs = [["up_proj_y", 7]], outputs = [["out", 8]], split = {dim = 0 : i64, inputs = [0], rows = 128 : i64}, tiling = 18 : i64}, tensors = ["act"]} : (!moe.tensor<R x 1536 x bf16>) -> !moe.tensor<R x 768 x bf16>
      %down_out = moe.gmm "down_proj"(%act, %down_weight) {reference = {core = "cube", inputs = [["swiglu_out", 8], ["weight", 9], ["glist", 10]], outputs = [["y", 11]], split = {dim = 0 : i64, inputs = [0], rows = 4096 : i64}, tiling = 19 : i64}, tensors = ["down_out"]} : (!moe.tensor<R x 768 x bf16>, !moe.tensor<64 x 768 x 2048 x bf16>) -> !moe.tensor<R x 2048 x bf16>
      %y = moe.combine "combine"(%down_out, %routing) weights(%expert_weights) {reference = {core = "vector", inputs = [["target_offset", 13], ["src", 11], ["src_offset", 14], ["size", 15]], outputs = [["target", 12]], split = {dim = 0 : i64, inputs = [1], rows = 128 : i64}}, tensors = ["y"]} : (!moe.tensor<R x 2048 x bf16>, !moe.routing, !moe.tensor<T x 8 x f32>) -> !moe.tensor<T x 2048 x bf16>
      moe.output "y", %y : !moe.tensor<T x 2048 x bf16>
      moe.output "rows_x", %rows_x : !moe.tensor<R x 2048 x bf16>
      moe.output "gate_up", %gate_up : !moe.tensor<R x 1536 x bf16>
      moe.output "act", %act : !moe.tensor<R x 768 x bf16>
    }
  }
}
