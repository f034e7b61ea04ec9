#include "ops/torch/dispatch.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstring>

#include "ops/torch/errors.h"
#include "ops/torch/token.h"

namespace sluice {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Copies tensors that the context owns, and makes the experts of their rows.
class CopiedRows : public StepOutputs {
 public:
  explicit CopiedRows(std::vector<std::string> names) : names_(std::move(names)) {}

  Status look(Context& context) override {
    for (const std::string& name : names_) {
      auto view = context.output(name);
      if (!view) return view.error();
      at::Tensor copy = makeTensor(view->type, view->shape);
      if (view->bytes() > 0) std::memcpy(copy.data_ptr(), view->data, view->bytes());
      copies.push_back(std::move(copy));
    }
    expertRows = context.expertRows();
    return {};
  }

  std::vector<at::Tensor> copies;
  std::vector<int32_t> expertRows;

 private:
  const std::vector<std::string> names_;
};

void refuseSecondDerivative() {
  if (at::GradMode::is_enabled())
    throwRuntime("dispatch and combine have no second derivative: call backward without create_graph");
}

// The rows of each expert of this rank, and the expert of each row.
std::pair<at::Tensor, at::Tensor> expertsOf(const LayerState& state, const std::vector<int32_t>& expertRows,
                                            int64_t rows) {
  at::Tensor counts = makeTensor(DType::kI64, {static_cast<int64_t>(expertRows.size())});
  at::Tensor experts = makeTensor(DType::kI64, {rows});
  int64_t* expert = experts.data_ptr<int64_t>();
  const int64_t first = state.program().firstExpertOf(state.rank());
  for (size_t e = 0; e < expertRows.size(); ++e) {
    counts.data_ptr<int64_t>()[e] = expertRows[e];
    expert = std::fill_n(expert, expertRows[e], first + static_cast<int64_t>(e));
  }
  return {counts, experts};
}

struct DispatchFunction : torch::autograd::Function<DispatchFunction> {
  static variable_list forward(AutogradContext* ctx, const c10::intrusive_ptr<TokenExchange>& exchange,
                               const at::Tensor& x, const at::Tensor& ids, const at::Tensor& probs) {
    LayerState& state = *exchange->state();
    const std::vector<NamedTensor> tensors = {
        {"x", viewOf(x)}, {"expert_ids", viewOf(ids)}, {"probs", viewOf(probs)}};
    const HeldSet held = refusing(state, [&] { return valueOf(state.savedSets().take()); });
    CopiedRows rows({"rows", "row_probs"});
    if (const Status ran = state.run("dispatch", tensors, held.set, &rows); !ran) {
      state.savedSets().release(held);
      throwRuntime(ran.error().message);
    }
    const int64_t received = rows.copies[0].size(0);
    const auto [counts, experts] = expertsOf(state, rows.expertRows, received);
    const at::Tensor token = makeToken(exchange, state, {held, x.size(0), received});
    ctx->save_for_backward({token});
    ctx->saved_data["exchange"] = exchange;
    ctx->mark_non_differentiable({experts, counts, token});
    return {rows.copies[0], experts, rows.copies[1], counts, token};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto exchange = ctx->saved_data["exchange"].toCustomClass<TokenExchange>();
    LayerState& state = *exchange->state();
    HeldStep step;
    at::Tensor dRows, dRowProbs, dx, dProbs;
    refusing(state, [&] {
      refuseSecondDerivative();
      step = stepOf(ctx->get_saved_variables()[0], state);
      dRows = grads[0].contiguous().resolve_neg();
      dRowProbs = grads[2].contiguous().resolve_neg();
      dx = makeTensor(DType::kBF16, {step.tokens, exchange->hidden()});
      dProbs = makeTensor(DType::kF32, {step.tokens, state.program().topK});
    });
    const std::vector<NamedTensor> tensors = {{"d_rows", viewOf(dRows)},
                                              {"d_row_probs", viewOf(dRowProbs)},
                                              {"dx", viewOf(dx)},
                                              {"d_probs", viewOf(dProbs)}};
    throwIfFailed(state.run("dispatch_backward", tensors, step.held.set));
    return {at::Tensor(), dx, at::Tensor(), dProbs};
  }
};

struct CombineFunction : torch::autograd::Function<CombineFunction> {
  static at::Tensor forward(AutogradContext* ctx, const c10::intrusive_ptr<TokenExchange>& exchange,
                            const at::Tensor& rows, const at::Tensor& handle) {
    HeldStep step;
    const at::Tensor y = refusing(*exchange->state(), [&] {
      step = stepOf(handle, *exchange->state());
      checkTensor("rows", rows, at::kBFloat16, {step.rows, exchange->hidden()});
      return makeTensor(DType::kBF16, {step.tokens, exchange->hidden()});
    });
    const std::vector<NamedTensor> tensors = {{"out_rows", viewOf(rows)}, {"y", viewOf(y)}};
    throwIfFailed(exchange->state()->run("combine", tensors, step.held.set));
    ctx->save_for_backward({handle});
    ctx->saved_data["exchange"] = exchange;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto exchange = ctx->saved_data["exchange"].toCustomClass<TokenExchange>();
    HeldStep step;
    const at::Tensor dy = refusing(*exchange->state(), [&] {
      refuseSecondDerivative();
      step = stepOf(ctx->get_saved_variables()[0], *exchange->state());
      return grads[0].contiguous().resolve_neg();
    });
    const std::vector<NamedTensor> tensors = {{"dy", viewOf(dy)}};
    CopiedRows rows({"d_out_rows"});
    throwIfFailed(exchange->state()->run("combine_backward", tensors, step.held.set, &rows));
    return {at::Tensor(), rows.copies[0], at::Tensor()};
  }
};

}  // namespace

TokenExchange::TokenExchange(c10::intrusive_ptr<Ranks> ranks, const std::string& path)
    : ranks_(std::move(ranks)) {
  ranks_->checkProcess();
  Program program = refusing(*ranks_, [&] { return load(path); });
  state_ = makeLayerState(*ranks_, std::move(program), path);
}

Program TokenExchange::load(const std::string& path) {
  Program program = loadProgram(*ranks_, path);
  const TaskProgram& tables = program.tables();
  for (const char* name : {"dispatch", "combine", "combine_backward", "dispatch_backward"}) {
    const bool there = std::any_of(tables.entries.begin(), tables.entries.end(),
                                   [&](const Entry& entry) { return entry.name == name; });
    if (!there) throwValue(fmt::format("{}: the program has no entry '{}'", path, name));
  }
  for (const Buffer& buffer : tables.buffers)
    if (buffer.name == "x" && buffer.role == Role::kInput) hidden_ = buffer.shape.back().size;
  return program;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> dispatchRows(
    const c10::intrusive_ptr<TokenExchange>& exchange, const at::Tensor& x, const at::Tensor& ids,
    const at::Tensor& probs) {
  throwIfFailed(exchange->state()->checkProcess());
  const TaskProgram& program = exchange->state()->program();
  const at::Tensor narrow = refusing(*exchange->state(), [&] {
    checkTensor("x", x, at::kBFloat16, {kAnySize, exchange->hidden()});
    const int64_t tokens = x.size(0);
    if (tokens > program.maxTokens)
      throwValue(
          fmt::format("x has {} tokens, but the exchange is for at most {}", tokens, program.maxTokens));
    checkTensor("probs", probs, at::kFloat, {tokens, program.topK});
    return expertIds(ids, tokens, program.topK, program.experts);
  });
  const variable_list made = DispatchFunction::apply(exchange, x, narrow, probs);
  return {made[0], made[1], made[2], made[3], made[4]};
}

at::Tensor combineRows(const c10::intrusive_ptr<TokenExchange>& exchange, const at::Tensor& rows,
                       const at::Tensor& handle) {
  throwIfFailed(exchange->state()->checkProcess());
  return CombineFunction::apply(exchange, rows, handle);
}

}  // namespace sluice
