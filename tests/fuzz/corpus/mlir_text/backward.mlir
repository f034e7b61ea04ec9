module {
  moe.graph @moe_ffn_backward ranks = 1 experts = 64 top_k = 8 max_tokens = 4096 symbols {ep = 1 : i64, experts = 64 : i64, hidden = 2048 : i64, intermediate = 768 : i64, max_tokens = 4096 : i64, top_k = 8 : i64} {
    moe.entry @backward {
      %dy = moe.input "dy" : !moe.tensor<T x 2048 x bf16>
      %expert_ids = moe.input "expert_ids" : !moe.tensor<T x 8 x i32>
      %expert_weights = moe.input "expert_weights" : !moe.tensor<T x 8 x f32>
      %gate_up_weight = moe.input "gate_up_weight" : !moe.tensor<64 x 2048 x 1536 x bf16>
      %down_weight = moe.input "down_weight" : !moe.tensor<64 x 768 x 2048 x bf16>
      %rows_x = moe.input "rows_x" : !moe.tensor<R x 2048 x bf16>
      %gate_up = moe.input "gate_up" : !moe.tensor<R x 1536 x bf16>
      %act = moe.input "act" : !moe.tensor<R x 768 x bf16>
      %routing = moe.route "route"(%expert_ids) {tensors = ["routing"]} : (!moe.tensor<T x 8 x i32>) -> !moe.routing
      %rows_dy, %row_weights = moe.dispatch "dispatch"(%dy, %routing) weights(%expert_weights) {reference = {core = "vector", inputs = [["target_offset", 1], ["src", 2], ["src_offset", 3], ["size", 4]], outputs = [["target", 0]], split = {inputs = [], rows = 128 : i64}}, tensors = ["rows_dy", "row_weights"]} : (!moe.tensor<T x 2048 x bf16>, !moe.routing, !moe.tensor<T x 8 x f32>) -> (!moe.tensor<R x 2048 x bf16>, !moe.tensor<R x f32>)
      %act_grad_y = moe.gmm "act_grad"(%rows_dy, %down_weight) transpose {reference = {core = "cube", inputs = [["target", 0], ["weight", 7], ["glist", 19]], outputs = [["y", 8]], split = {dim = 0 : i64, inputs = [0], rows = 4096 : i64}, tiling = 20 : i64}, tensors = ["act_grad_y"]} : (!moe.tensor<R x 2048 x bf16>, !moe.tensor<64 x 768 x 2048 x bf16>) -> !moe.tensor<R x 768 x bf16>
      %down_weight_grad = moe.gmm_weight_grad "down_weight_grad"(%act, %rows_dy) scale(%row_weights) {reference = {core = "cube", inputs = [["x1", 5], ["target", 0], ["glist", 19]], outputs = [["y", 6]], split = {dim = 0 : i64, inputs = [1], rows = 4096 : i64}, tiling = 23 : i64}, tensors = ["down_weight_grad"]} : (!moe.tensor<R x 768 x bf16>, !moe.tensor<R x 2048 x bf16>, !moe.tensor<R x f32>) -> !moe.tensor<64 x 768 x 2048 x f32>
      %gate_up_grad, %row_weight_grad = moe.activation_grad "swiglu_grad"  swiglu(%act_grad_y, %gate_up) weights(%row_weights) {reference = {core = "vector", inputs = [["act_grad_y", 8], ["dy", 9]], outputs = [["out", 10]], split = {dim = 0 : i64, inputs = [0], rows = 128 : i64}, tiling = 24 : i64}, tensors = ["gate_up_grad", "row_weight_grad"]} : (!moe.tensor<R x 768 x bf16>, !moe.tensor<R x 1536 x bf16>, !moe.tensor<R x f32>) -> (!moe.tensor<R x 1536 x bf16>, !moe.tensor<R x f32>)
      %rows_dx = moe.gmm "gate_grad"(%gate_up_grad, %gate_up_weight) transpose {reference = {core = "cube", inputs = [["swiglu_out", 10], ["weight", 11], ["glist", 19]], outputs = [["y", 12]], split = {dim = 0 : i64, inputs = [0], rows = 4096 : i64}, tiling = 21 : i64}, tensors = ["rows_dx"]} : (!moe.tensor<R x 1536 x bf16>, !moe.tensor<64 x 2048 x 1536 x bf16>) -> !moe.tensor<R x 2048 x bf16>
      %dx, %d_expert_weights = moe.combine "combine"(%rows_dx, %routing) scalars(%row_weight_grad) {reference = {core = "vector", inputs = [["target_offset", 14], ["src", 12], ["src_offset", 15], ["size", 16]], outputs = [["target", 13]], split = {dim = 0 : i64, inputs = [1], rows = 128 : i64}}, tensors = ["dx", "d_expert_weights"]} : (!moe.tensor<R x 2048 x bf16>, !moe.routing, !moe.tensor<R x f32>) -> (!moe.tensor<T x 2048 x bf16>, !moe.tensor<T x 8 x f32>)
      %gate_up_weight_grad = moe.gmm_weight_grad "gate_up_weight_grad"(%rows_x, %gate_up_grad) {reference = {after = "gate_grad", core = "cube", inputs = [["x1", 17], ["swiglu_out", 10], ["glist", 19]], outputs = [["y", 18]], split = {dim = 0 : i64, inputs = [1], rows = 4096 : i64}, tiling = 22 : i64}, tensors = ["gate_up_weight_grad"]} : (!moe.tensor<R x 2048 x bf16>, !moe.tensor<R x 1536 x bf16>) -> !moe.tensor<64 x 2048 x 1536 x f32>
      moe.output "dx", %dx : !moe.tensor<T x 2048 x bf16>
      moe.output "d_expert_weights", %d_expert_weights : !moe.tensor<T x 8 x f32>
      moe.output "gate_up_weight_grad", %gate_up_weight_grad : !moe.tensor<64 x 2048 x 1536 x f32>
      moe.output "down_weight_grad", %down_weight_grad : !moe.tensor<64 x 768 x 2048 x f32>
    }
  }
}
