// TokenExchange: the class torch.classes.sluice.Exchange, which sends tokens to the ranks of their experts
// and back, for models that compute the experts themselves.
//
// Its program has four entries that share one routing: dispatch (x, expert_ids, probs to rows, row_probs),
// combine (out_rows to y), and their gradients: combine_backward (dy to d_out_rows), which is a dispatch, and
// dispatch_backward (d_rows, d_row_probs to dx, d_probs), which is a combine. Any number of threads may use
// it; all ranks must make the same calls in the same order. Errors are exceptions.
#pragma once

#include <torch/custom_class.h>

#include <string>
#include <tuple>
#include <vector>

#include "ops/torch/layer_state.h"
#include "ops/torch/ranks.h"
#include "ops/torch/tensors.h"

namespace sluice {

class TokenExchange : public torch::CustomClassHolder {
 public:
  // Collective. `path` names a task program.
  TokenExchange(c10::intrusive_ptr<Ranks> ranks, const std::string& path);

  int64_t savedSets() const { return state_->savedSets().made(); }
  int64_t savedInUse() const { return state_->savedSets().inUse(); }
  int64_t savedBytes() const { return state_->savedBytes(); }

  int64_t hidden() const { return hidden_; }
  const LayerStatePtr& state() const { return state_; }

 private:
  Program load(const std::string& path);

  c10::intrusive_ptr<Ranks> ranks_;  // must outlive the state
  LayerStatePtr state_;
  int64_t hidden_ = 0;
};

// Sends tokens x [T,H] to rows [R,H], one per (token, k) pair whose expert is on this rank: ordered by
// expert, then by source rank, then by token. Also returns each row's expert (numbered over all ranks, I64)
// and probability (F32), the rows per expert of this rank (I64), and a handle. The routing is kept until the
// handle and the graph are freed. Differentiable in x and probs. Collective, and so is its backward.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> dispatchRows(
    const c10::intrusive_ptr<TokenExchange>& exchange, const at::Tensor& x, const at::Tensor& expertIds,
    const at::Tensor& probs);

// Returns rows to their tokens: [T,H], each the sum of the token's rows. Differentiable in rows. Collective,
// and so is its backward.
at::Tensor combineRows(const c10::intrusive_ptr<TokenExchange>& exchange, const at::Tensor& rows,
                       const at::Tensor& handle);

}  // namespace sluice
