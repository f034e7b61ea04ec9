#include "ops/torch/dispatch.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <future>

#include "ops/torch/errors.h"
#include "ops/torch/token.h"

namespace sluice {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using ExchangePtr = c10::intrusive_ptr<TokenExchange>;

int64_t countRowBytes(const at::Tensor& tensor) {
  return tensor.element_size() * (tensor.dim() > 1 ? tensor.size(1) : 1);
}

// The rows that a step brings to this rank, in tensors that are made when their number is known.
class Arrival : public StepWatcher {
 public:
  // This is for a dispatch, which routes: what comes beside each row is brought, too.
  Arrival(const TokenExchange& exchange, int64_t fixed, int64_t multiple)
      : exchange_(exchange), name_("rows"), fixed_(fixed), multiple_(multiple), hasProbs_(true) {}
  // This is for the backward of a combine.
  Arrival(const TokenExchange& exchange, std::shared_ptr<const RowLayout> layout)
      : exchange_(exchange), name_("d_out_rows"), layout_(std::move(layout)) {}

  NamedRows named() {
    return {name_, rowMemory([this](std::span<const int32_t> firstRows) { return place(firstRows); })};
  }
  void begun() override { begun_.set_value(isBegun_ = true); }
  Status ended(const Status& ran, const OutputReader& output) override {
    Status status = ran;
    if (ran) {
      try {
        finish(output);
      } catch (...) {
        status = Error{messageOfException()};
      }
    }
    if (!isBegun_) begun_.set_value(false);
    return status;
  }
  // Waits until the rows of a submitted step are known; returns false if the step failed before.
  bool awaitBegun() { return begun_.get_future().get(); }

  const std::shared_ptr<const RowLayout>& layout() const { return layout_; }

  at::Tensor rows, experts, probs, counts;
  at::Tensor places;  // with one row per (token, rank): which k of their token `probs` are, I32

 private:
  void* place(std::span<const int32_t> firstRows) {
    if (!layout_)
      layout_ = std::make_shared<const RowLayout>(valueOrThrow(makeRowLayout(firstRows, fixed_, multiple_)));
    const Buffer& buffer = exchange_.at(name_);
    const int64_t columns = exchange_.columns(name_);
    rows = makeTensor(buffer.type, {layout_->rows, columns});
    received_ = layout_->hasGaps() ? makeTensor(buffer.type, {layout_->received, columns}) : rows;
    if (hasProbs_) makeSides();
    return received_.data_ptr();
  }

  void makeSides() {
    if (exchange_.isByRank()) return makeSidesOfRank();
    const std::vector<RowLayout::Expert>& all = layout_->experts;
    counts = makeTensor(DType::kI64, {2, static_cast<int64_t>(all.size())});
    experts = makeTensor(DType::kI64, {layout_->rows});
    probs = makeTensor(DType::kF32, {layout_->rows});
    std::fill_n(experts.data_ptr<int64_t>(), layout_->rows, -1);
    const LayerState& state = *exchange_.state();
    const int64_t first = state.program().findFirstExpert(state.rank());
    for (size_t e = 0; e < all.size(); ++e) {
      counts.data_ptr<int64_t>()[e] = all[e].received;
      counts.data_ptr<int64_t>()[all.size() + e] = all[e].padded;
      std::fill_n(experts.data_ptr<int64_t>() + all[e].first, all[e].received,
                  first + static_cast<int64_t>(e));
    }
  }

  void makeSidesOfRank() {
    const int64_t width = std::min(exchange_.columns("d_probs"), exchange_.experts());
    counts = at::zeros({2, exchange_.experts()}, at::TensorOptions(at::kLong));
    experts = makeTensor(DType::kI64, {layout_->rows, width});
    probs = makeTensor(DType::kF32, {layout_->rows, width});
    places = makeTensor(DType::kI32, {layout_->rows, width});
  }

  void finish(const OutputReader& output) {
    spreadRows(*layout_, received_.data_ptr(), rows.data_ptr(), countRowBytes(rows));
    received_.reset();
    if (!hasProbs_) return;
    const TensorView view = valueOrThrow(output("row_probs"));
    if (exchange_.isByRank())
      selectOwn(static_cast<const float*>(view.data));
    else
      spreadRows(*layout_, view.data, probs.data_ptr(), countRowBytes(probs));
  }

  // Selects the ids and probabilities of this rank's experts among all ids and probabilities of each row's
  // token. There is one expert, the rank itself, so rows have no gaps.
  void selectOwn(const float* sides) {
    const int64_t topK = exchange_.columns("d_probs"), width = probs.size(1);
    int64_t* id = experts.data_ptr<int64_t>();
    float* prob = probs.data_ptr<float>();
    int32_t* at = places.data_ptr<int32_t>();
    for (int64_t row = 0; row < layout_->rows;
         ++row, id += width, prob += width, at += width, sides += 2 * topK) {
      int64_t found = 0;
      for (int32_t k = 0; row < layout_->received && k < topK; ++k) {
        const int64_t own = static_cast<int64_t>(sides[k]) - exchange_.firstExpert();
        if (sides[k] < 0 || own < 0 || own >= exchange_.experts() || found == width) continue;
        id[found] = own;
        prob[found] = sides[topK + k];
        at[found++] = k;
        for (const int64_t kind : {int64_t{0}, exchange_.experts()}) ++counts.data_ptr<int64_t>()[kind + own];
      }
      std::fill(id + found, id + width, -1);
      std::fill(prob + found, prob + width, 0.0f);
      std::fill(at + found, at + width, -1);
    }
  }

  const TokenExchange& exchange_;
  const std::string name_;
  const int64_t fixed_ = -1, multiple_ = 1;
  const bool hasProbs_ = false;
  std::shared_ptr<const RowLayout> layout_;
  at::Tensor received_;
  bool isBegun_ = false;
  std::promise<bool> begun_;
};

void refuseSecondDerivative() {
  if (at::GradMode::is_enabled())
    throwRuntime("dispatch and combine have no second derivative: call backward without create_graph");
}

// Rows of the caller as the program reads them: without gaps.
at::Tensor received(const RowLayout& layout, const at::Tensor& rows) {
  if (!layout.hasGaps()) return rows.narrow(0, 0, layout.received);
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] = layout.received;
  const at::Tensor made = at::empty(shape, rows.options());
  gatherRows(layout, rows.data_ptr(), made.data_ptr(), countRowBytes(rows));
  return made;
}

// Turns gradients of the probabilities of each row into gradients of all K probabilities of its token.
at::Tensor ofTokens(const TokenExchange& exchange, const RowLayout& layout, const at::Tensor& grads,
                    const at::Tensor& places) {
  const int64_t topK = exchange.columns("d_probs"), width = grads.size(1);
  at::Tensor made = at::zeros({layout.received, topK}, grads.options());
  for (int64_t i = 0; i < layout.received * width; ++i)
    if (const int32_t k = places.data_ptr<int32_t>()[i]; k >= 0)
      made.data_ptr<float>()[i / width * topK + k] = grads.data_ptr<float>()[i];
  return made;
}

// Runs a step that uses `tensors`, the result first, or submits it: then it returns when the rows are known.
OptionalPending runStep(const ExchangePtr& exchange, std::string_view entry,
                        const std::vector<NamedTensor>& named, const HeldStep& step,
                        const std::shared_ptr<Arrival>& arrival, bool submit,
                        std::vector<at::Tensor> tensors) {
  LayerState& state = *exchange->state();
  std::vector<NamedRows> rows;
  if (arrival) rows.push_back(arrival->named());
  const StepExtras extras{rows, arrival, 0};
  if (!submit) {
    throwIfFailed(state.run(entry, named, step.held.set, extras));
    return {};
  }
  auto pending = valueOrThrow(state.submit(entry, named, step.held.set, extras));
  const bool isBegun = !arrival || arrival->awaitBegun();
  if (!isBegun) throwIfFailed(pending.wait());
  if (arrival) tensors.insert(tensors.begin(), arrival->rows);
  return c10::make_intrusive<Pending>(exchange, state, std::move(tensors), std::move(pending));
}

// The results of a dispatch that are no tensors, and how it runs.
struct DispatchCall {
  int64_t rows, multiple;
  bool submit;
  OptionalPending pending;
};

struct DispatchFunction : torch::autograd::Function<DispatchFunction> {
  static variable_list forward(AutogradContext* ctx, const ExchangePtr& exchange, const at::Tensor& x,
                               const at::Tensor& ids, const at::Tensor& probs, DispatchCall* call) {
    LayerState& state = *exchange->state();
    const std::vector<NamedTensor> named = {
        {"x", viewTensor(x)}, {"expert_ids", viewTensor(ids)}, {"probs", viewTensor(probs)}};
    const HeldSet held = refusing(state, [&] { return valueOrThrow(state.savedSets().take()); });
    const auto made = std::make_shared<Arrival>(*exchange, call->rows, call->multiple);
    try {
      call->pending = runStep(exchange, "dispatch", named, {held}, made, call->submit, {x, ids, probs});
    } catch (...) {
      state.savedSets().release(held);
      throw;
    }
    exchange->keepLayout(held, made->layout());
    const at::Tensor token = makeToken(exchange, state, {held, x.size(0), made->layout()->rows});
    ctx->save_for_backward({token, made->places});
    ctx->saved_data["exchange"] = exchange;
    ctx->mark_non_differentiable({made->experts, made->counts, token});
    return {made->rows, made->experts, made->probs, made->counts, token};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto exchange = ctx->saved_data["exchange"].toCustomClass<TokenExchange>();
    LayerState& state = *exchange->state();
    HeldStep step;
    at::Tensor dRows, dRowProbs, dx, dProbs;
    refusing(state, [&] {
      refuseSecondDerivative();
      const variable_list saved = ctx->get_saved_variables();
      step = findHeldStep(saved[0], state);
      const auto layout = exchange->findLayout(step.held);
      dRows = received(*layout, grads[0].contiguous().resolve_neg());
      dRowProbs = received(*layout, grads[2].contiguous().resolve_neg());
      if (exchange->isByRank()) dRowProbs = ofTokens(*exchange, *layout, dRowProbs, saved[1]);
      dx = makeTensor(exchange->at("dx").type, {step.tokens, exchange->columns("dx")});
      dProbs = makeTensor(DType::kF32, {step.tokens, exchange->columns("d_probs")});
    });
    const std::vector<NamedTensor> named = {{"d_rows", viewTensor(dRows)},
                                            {"d_row_probs", viewTensor(dRowProbs)},
                                            {"dx", viewTensor(dx)},
                                            {"d_probs", viewTensor(dProbs)}};
    runStep(exchange, "dispatch_backward", named, step, nullptr, false, {});
    if (exchange->isByRank()) dProbs = at::cat({at::zeros_like(dProbs), dProbs}, 1);
    return {at::Tensor(), dx, at::Tensor(), dProbs, at::Tensor()};
  }
};

struct CombineFunction : torch::autograd::Function<CombineFunction> {
  static at::Tensor forward(AutogradContext* ctx, const ExchangePtr& exchange, const at::Tensor& rows,
                            const at::Tensor& handle, bool submit, OptionalPending* pending) {
    HeldStep step;
    at::Tensor y, read;
    refusing(*exchange->state(), [&] {
      step = findHeldStep(handle, *exchange->state());
      const DType type = exchange->at("out_rows").type;
      checkTensor("rows", rows, torchType(type), {step.rows, exchange->columns("out_rows")});
      read = received(*exchange->findLayout(step.held), rows);
      y = makeTensor(type, {step.tokens, exchange->columns("y")});
    });
    const std::vector<NamedTensor> named = {{"out_rows", viewTensor(read)}, {"y", viewTensor(y)}};
    *pending = runStep(exchange, "combine", named, step, nullptr, submit, {y, read, handle});
    ctx->save_for_backward({handle});
    ctx->saved_data["exchange"] = exchange;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto exchange = ctx->saved_data["exchange"].toCustomClass<TokenExchange>();
    HeldStep step;
    const at::Tensor dy = refusing(*exchange->state(), [&] {
      refuseSecondDerivative();
      step = findHeldStep(ctx->get_saved_variables()[0], *exchange->state());
      return grads[0].contiguous().resolve_neg();
    });
    const std::vector<NamedTensor> named = {{"dy", viewTensor(dy)}};
    const auto made = std::make_shared<Arrival>(*exchange, exchange->findLayout(step.held));
    runStep(exchange, "combine_backward", named, step, made, false, {});
    return {at::Tensor(), made->rows, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

TokenExchange::TokenExchange(c10::intrusive_ptr<Ranks> ranks, const std::string& path, int64_t firstExpert,
                             int64_t experts, const std::string& arguments)
    : ranks_(std::move(ranks)), firstExpert_(firstExpert), experts_(experts) {
  ranks_->checkProcess();
  ranks_->checkOnCpu("exchanges of tokens");
  Program program = refusing(*ranks_, [&] { return load(path); });
  state_ = makeLayerState(*ranks_, std::move(program), path, arguments);
}

Program TokenExchange::load(const std::string& path) const {
  Program program = loadProgram(*ranks_, path);
  const TaskProgram& tables = program.tables();
  for (const char* name : {"dispatch", "combine", "combine_backward", "dispatch_backward"}) {
    const bool there = std::any_of(tables.entries.begin(), tables.entries.end(),
                                   [&](const Entry& entry) { return entry.name == name; });
    if (!there) throwValue(fmt::format("{}: the program has no entry '{}'", path, name));
  }
  return program;
}

const Buffer& TokenExchange::at(std::string_view name) const {
  for (const Buffer& buffer : state_->program().buffers)
    if (buffer.name == name && (buffer.role == Role::kInput || buffer.role == Role::kOutput)) return buffer;
  throwValue(fmt::format("the program '{}' has no tensor '{}'", state_->program().name, name));
}

void TokenExchange::keepLayout(HeldSet held, std::shared_ptr<const RowLayout> layout) {
  const std::lock_guard<std::mutex> lock(layoutsMutex_);
  layouts_.resize(std::max<size_t>(layouts_.size(), held.set + 1));
  layouts_[held.set] = std::move(layout);
}

std::shared_ptr<const RowLayout> TokenExchange::findLayout(HeldSet held) const {
  const std::lock_guard<std::mutex> lock(layoutsMutex_);
  return layouts_.at(held.set);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, OptionalPending> dispatchRows(
    const ExchangePtr& exchange, const at::Tensor& x, const at::Tensor& ids, const at::Tensor& probs,
    int64_t rows, int64_t multiple, bool submit) {
  throwIfFailed(exchange->state()->checkProcess());
  const TaskProgram& program = exchange->state()->program();
  const at::Tensor narrow = refusing(*exchange->state(), [&] {
    checkTensor("x", x, torchType(exchange->at("x").type), {kAnySize, exchange->columns("x")});
    const int64_t tokens = x.size(0);
    if (tokens > program.maxTokens)
      throwValue(
          fmt::format("x has {} tokens, but the exchange is for at most {}", tokens, program.maxTokens));
    checkTensor("token_probs", probs, at::kFloat, {tokens, exchange->columns("probs")});
    if (multiple < 1) throwValue(fmt::format("pad_multiple is {}, expected 1 or more", multiple));
    return expertIds(ids, tokens, program.topK, program.experts, at::kCPU, "token_indices");
  });
  DispatchCall call{rows, multiple, submit, {}};
  const variable_list made = DispatchFunction::apply(exchange, x, narrow, probs, &call);
  return {made[0], made[1], made[2], made[3], made[4], std::move(call.pending)};
}

std::tuple<at::Tensor, OptionalPending> combineRows(const ExchangePtr& exchange, const at::Tensor& rows,
                                                    const at::Tensor& handle, bool submit) {
  throwIfFailed(exchange->state()->checkProcess());
  OptionalPending pending;
  const at::Tensor y = CombineFunction::apply(exchange, rows, handle, submit, &pending);
  return {y, std::move(pending)};
}

}  // namespace sluice
