// TokenExchange: the class torch.classes.sluice.Exchange, which sends tokens to the ranks of their experts
// and back, for models that compute the experts themselves.
//
// Its program (graphs/exchange) has four entries that share one routing: dispatch (x, expert_ids, probs to
// rows, row_probs), combine (out_rows to y), and their gradients: combine_backward (dy to d_out_rows), which
// is a dispatch, and dispatch_backward (d_rows, d_row_probs to dx, d_probs), which is a combine. Any number
// of threads may use it; all ranks must make the same calls in the same order. Errors are exceptions.
//
// It has one row per (token, expert), or one per (token, rank). Then the program's experts are the ranks,
// `probs` [T,2K] is the ids of a token's experts, as numbers, and their probabilities, all of which go to
// each rank.
#pragma once

#include <torch/custom_class.h>

#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "ops/torch/layer_state.h"
#include "ops/torch/pending.h"
#include "ops/torch/ranks.h"
#include "ops/torch/row_layout.h"
#include "ops/torch/tensors.h"

namespace sluice {

class TokenExchange : public torch::CustomClassHolder {
 public:
  // Collective. `path` names a task program. If it has one row per (token, rank), this rank owns `experts`
  // experts from `firstExpert` on; else `experts` is -1.
  TokenExchange(c10::intrusive_ptr<Ranks> ranks, const std::string& path, int64_t firstExpert,
                int64_t experts, const std::string& arguments);

  int64_t savedSets() const { return state_->savedSets().made(); }
  int64_t savedInUse() const { return state_->savedSets().inUse(); }
  int64_t savedBytes() const { return state_->savedBytes(); }

  const LayerStatePtr& state() const { return state_; }
  const Buffer& at(std::string_view name) const;
  int64_t columns(std::string_view name) const { return at(name).shape.back().size; }

  // Whether there is one row per (token, rank): then this rank has experts() from firstExpert() on.
  bool isByRank() const { return experts_ >= 0; }
  int64_t firstExpert() const { return firstExpert_; }
  int64_t experts() const { return experts_; }

  // The rows of the step that filled a set.
  void keepLayout(HeldSet held, std::shared_ptr<const RowLayout> layout);
  std::shared_ptr<const RowLayout> findLayout(HeldSet held) const;

 private:
  Program load(const std::string& path) const;

  c10::intrusive_ptr<Ranks> ranks_;  // must outlive the state
  LayerStatePtr state_;
  const int64_t firstExpert_, experts_;
  mutable std::mutex layoutsMutex_;
  std::vector<std::shared_ptr<const RowLayout>> layouts_;  // by set
};

using OptionalPending = c10::optional<c10::intrusive_ptr<Pending>>;

// Sends tokens x [T,H] to rows [N,H], one per (token, k) pair whose expert is on this rank: ordered by
// expert, then by source rank, then by token. Each expert's rows begin at a multiple of `multiple`; N is
// `rows`, or as many as there are if that is -1; pads are zeros. Also returns
//   the experts of each row (I64, -1: none): [N], numbered over all ranks, or, with one row per (token,
//     rank), [N,S], numbered from the first of this rank
//   their probabilities (F32, of the same shape)
//   counts per expert of this rank (I64 [2,E]): rows, and rows with pads
//   a handle. The routing is kept until the handle and the graph are freed
//   if `submit`, the step: then the function returns when the number of rows is known, and the contents of
//     the results are there when the step has ended (of one row per (token, expert), experts and counts at
//     once).
// Differentiable in x and probs. Collective, and so is its backward.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, OptionalPending> dispatchRows(
    const c10::intrusive_ptr<TokenExchange>& exchange, const at::Tensor& x, const at::Tensor& expertIds,
    const at::Tensor& probs, int64_t rows, int64_t multiple, bool submit);

// Returns rows to their tokens: [T,H], each the sum of the token's rows, and the step, if `submit`.
// Differentiable in rows. Collective, and so is its backward.
std::tuple<at::Tensor, OptionalPending> combineRows(const c10::intrusive_ptr<TokenExchange>& exchange,
                                                    const at::Tensor& rows, const at::Tensor& handle,
                                                    bool submit);

}  // namespace sluice
