#include "ops/torch/linear_op.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>

#include "ops/torch/errors.h"
#include "ops/torch/token.h"
#include "runtime/program/op_table.h"

namespace sluice {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::string_view kWeightAmax = "weight_amax";

// A weight or bias [N, C] or [N] as the program has it: [1, N, C], [1, N] or [N].
TensorView viewAs(const Buffer& buffer, const at::Tensor& tensor) {
  TensorView view = viewTensor(tensor);
  if (view.shape.size() < buffer.shape.size()) view.shape.insert(view.shape.begin(), 1);
  return view;
}

// The shape without the axis of the one expert.
std::vector<int64_t> shapeOf(const Buffer& buffer, bool isBias) {
  std::vector<int64_t> shape;
  for (const Dim& dim : buffer.shape) shape.push_back(dim.size);
  if (shape.size() > (isBias ? 1 : 2)) shape.erase(shape.begin());
  return shape;
}

// In the program's type: float32 parameters give a rounded copy.
at::Tensor stored(std::string_view name, const at::Tensor& tensor, const std::vector<int64_t>& shape) {
  const bool rounds = tensor.defined() && tensor.scalar_type() == at::kFloat;
  checkTensor(name, tensor, rounds ? at::kFloat : at::kBFloat16, shape);
  return rounds ? tensor.to(at::kBFloat16) : tensor;
}

// The tensors of one step, which live until it is over.
class LinearStep {
 public:
  explicit LinearStep(const LinearLayer& layer) : layer_(layer) {}

  void bind(std::string_view name, const at::Tensor& tensor) {
    tensors_.push_back({name, viewAs(layer_.at(name), tensor)});
  }
  // The result `name`: of rows, or of `tokens` tokens. Of rows it is made when their number is known.
  void makeResult(std::string_view name, int64_t tokens, at::Tensor& result) {
    const DType type = layer_.at(name).type;
    const int64_t columns = layer_.columns(name);
    if (!layer_.isOfRows(name)) {
      result = makeTensor(type, {tokens, columns});
      return bind(name, result);
    }
    rows_.push_back({name, rowMemory([&result, type, columns](std::span<const int32_t> first) {
                       result = makeTensor(type, {first.back(), columns});
                       return result.data_ptr();
                     }),
                     false});
  }
  Status run(LayerState& state, std::string_view entry, uint32_t set, int64_t common = 0) const {
    return state.run(entry, tensors_, set, {rows_, nullptr, common});
  }
  // Only of a step without rows of the caller's.
  Expected<PendingStep> submit(LayerState& state, std::string_view entry, uint32_t set) const {
    return state.submit(entry, tensors_, set);
  }

 private:
  const LinearLayer& layer_;
  std::vector<NamedTensor> tensors_;
  std::vector<NamedRows> rows_;
};

// A forward step that has been checked.
struct Ready {
  at::Tensor x, weight, bias, weightAmax;
  AmaxTensors amaxes;
  int64_t tokens = 0, width = 1;
  HeldSet held;
  // If the program delays weight gradients: where backwards put them, and weight and bias with what autograd
  // knows of them.
  OptionalQueue delayed = {};
  std::vector<at::Tensor> own = {};
};

Ready prepare(LinearLayer& layer, const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias,
              const OptionalTensor& mainGrad, int64_t tokens, int64_t width, const OptionalTensor& weightAmax,
              const TensorsOrNone& amaxesUsed, const TensorsOrNone& amaxes, const OptionalQueue& delayed,
              bool asked) {
  const at::NoGradGuard isNoStepOfAutograd;
  if (asked && !layer.find("dy"))
    throwRuntime("a gradient is required, but the program has no entry 'backward'");
  if (asked && layer.delaysWeightGrads() && !delayed.has_value())
    throwRuntime("the program delays weight gradients, expected a WeightGradQueue for them");
  checkTensor("x", x, at::kBFloat16, {kAnySize, layer.columns("x")});
  const int64_t most = layer.state().program().maxTokens;
  if (tokens < 0 || tokens > most)
    throwValue(
        fmt::format("x gives this rank {} tokens, but the layer was compiled for at most {}", tokens, most));
  Ready ready;
  ready.x = x;
  ready.weight = stored("weight", weight, shapeOf(layer.at("weight"), false));
  ready.tokens = tokens;
  ready.width = width;
  if (layer.find("bias"))
    ready.bias = stored("bias", bias.value_or(at::Tensor()), shapeOf(layer.at("bias"), true));
  if (layer.find(kWeightAmax)) {
    ready.weightAmax = weightAmax.value_or(at::Tensor());
    checkTensor(kWeightAmax, ready.weightAmax, at::kFloat, {1, 1});
  }
  ready.amaxes = AmaxTensors(layer.amaxes(), amaxesUsed, amaxes);
  if (mainGrad.has_value()) {
    if (!layer.accumulates()) throwRuntime("main_grad is given, but the layer's program does not accumulate");
    checkTensor("main_grad", *mainGrad, at::kFloat, shapeOf(layer.at("weight_grad"), false));
  }
  ready.held = valueOrThrow(layer.state().savedSets().take());
  return ready;
}

at::Tensor runForward(LinearLayer& layer, const Ready& ready) {
  at::Tensor y;
  LinearStep step(layer);
  step.bind("x", ready.x);
  step.bind("weight", ready.weight);
  if (ready.bias.defined()) step.bind("bias", ready.bias);
  if (ready.weightAmax.defined()) step.bind(kWeightAmax, ready.weightAmax);
  ready.amaxes.bindForward(
      layer.amaxes(), [&](const std::string& name, const at::Tensor& tensor) { step.bind(name, tensor); });
  step.makeResult("y", ready.tokens, y);
  if (const Status ran = step.run(layer.state(), "forward", ready.held.set, ready.width); !ran) {
    layer.state().savedSets().release(ready.held);
    throwRuntime(ran.error().message);
  }
  return y;
}

// What a backward reads, and the gradients of weight and bias, which it or a later step computes.
class LinearBackward {
 public:
  LinearBackward(c10::intrusive_ptr<LinearLayer> layer, AutogradContext& ctx)
      : layer_(std::move(layer)),
        needed_{ctx.needs_input_grad(1), layer_->find("bias") && ctx.needs_input_grad(2)},
        mainGrad_(ctx.saved_data["main_grad"].toOptional<at::Tensor>()),
        own_(ctx.saved_data["own"].toTensorVector()) {
    const variable_list saved = ctx.get_saved_variables();
    token_ = saved[0];
    held_ = findHeldStep(token_, layer_->state());
    if (layer_->find("dx")) {
      inputs_.emplace_back("weight", saved[1]);
      if (layer_->find(kWeightAmax))
        inputs_.emplace_back(kWeightAmax, ctx.saved_data["weight_amax"].toTensor());
    }
    AmaxTensors(ctx.saved_data["amaxes"])
        .bindBackward(layer_->amaxes(), [&](const std::string& name, const at::Tensor& tensor) {
          inputs_.emplace_back(name, tensor);
        });
    if (layer_->backwardReadsX()) inputs_.emplace_back("x", saved[2]);
  }

  const HeldStep& held() const { return held_; }
  bool needsWeightGrads() const { return needed_[0] || needed_[1]; }

  void bindInputs(LinearStep& step, const at::Tensor& dy) {
    inputs_.emplace_back("dy", dy);
    for (const KeptTensor& input : inputs_) step.bind(input.name, input.tensor);
  }

  // Gradients of weight and bias; undefined where there is none, or where the step adds it to the main_grad.
  variable_list bindGrads(LinearStep& step) const {
    variable_list grads(2);
    // a main_grad that this backward does not need stays unchanged
    if (layer_->find("weight_grad") && mainGrad_.has_value() && needed_[0])
      step.bind("weight_grad", *mainGrad_);
    else if (layer_->find("weight_grad"))
      step.bind("weight_grad", grads[0] = gradient("weight_grad"));
    if (layer_->find("bias_grad")) step.bind("bias_grad", grads[1] = gradient("bias_grad"));
    return grads;
  }

  // After a step that had the gradients.
  void countChanges() const {
    if (layer_->find("weight_grad") && mainGrad_.has_value() && needed_[0])
      mainGrad_->unsafeGetTensorImpl()->bump_version();
  }

  // What the program delays.
  WeightsAndGrads compute(bool submit) const {
    const at::NoGradGuard isNoStepOfAutograd;
    LayerState& state = layer_->besideState();
    throwIfFailed(state.checkProcess());
    variable_list grads;
    const LinearStep step = refusing(state, [&] {
      LinearStep made(*layer_);
      for (const KeptTensor& input : inputs_) {
        if (!layer_->isReadByWeightGrads(input.name)) continue;
        input.check();
        made.bind(input.name, input.tensor);
      }
      grads = bindGrads(made);
      return made;
    });
    WeightsAndGrads made;
    if (submit) {
      variable_list used = {token_, mainGrad_.value_or(at::Tensor()), grads[0], grads[1]};
      for (const KeptTensor& input : inputs_) used.push_back(input.tensor);
      auto pending = valueOrThrow(step.submit(state, "weight_grads", held_.held.set));
      std::get<2>(made) = c10::make_intrusive<Pending>(layer_, state, std::move(used), std::move(pending));
    } else {
      throwIfFailed(step.run(state, "weight_grads", held_.held.set));
    }
    countChanges();
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!needed_[i]) continue;
      std::get<0>(made).push_back(own_[i]);
      std::get<1>(made).push_back(grads[i].defined() ? grads[i] : addedElsewhere(own_[i]));
    }
    return made;
  }

 private:
  at::Tensor gradient(std::string_view name) const {
    const Buffer& buffer = layer_->at(name);
    at::Tensor grad = makeTensor(buffer.type, shapeOf(buffer, name == "bias_grad"), layer_->grads());
    if (layer_->accumulates()) grad.zero_();
    return grad;
  }

  c10::intrusive_ptr<LinearLayer> layer_;
  const std::array<bool, 2> needed_;  // of weight and bias
  OptionalTensor mainGrad_;
  std::vector<at::Tensor> own_;
  at::Tensor token_;  // keeps the set
  HeldStep held_;
  std::vector<KeptTensor> inputs_;
};

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const c10::intrusive_ptr<LinearLayer>& layer,
                            const at::Tensor& /*x*/, const at::Tensor& /*weight*/,
                            const OptionalTensor& /*bias*/, const OptionalTensor& mainGrad,
                            const Ready& ready) {
    const at::Tensor y = runForward(*layer, ready);
    const at::Tensor token = makeToken(layer, layer->state(), {ready.held, ready.tokens, 0});
    // saves only the tensors that backward reads, so that others may be changed in place meanwhile
    const at::Tensor none;
    ctx->save_for_backward(
        {token, layer->find("dx") ? ready.weight : none, layer->backwardReadsX() ? ready.x : none});
    ctx->saved_data["layer"] = layer;
    ctx->saved_data["main_grad"] = mainGrad;
    ctx->saved_data["weight_amax"] = ready.weightAmax;
    ctx->saved_data["amaxes"] = ready.amaxes.kept();
    ctx->saved_data["delayed"] = ready.delayed;
    ctx->saved_data["own"] = ready.own;
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const auto layer = ctx->saved_data["layer"].toCustomClass<LinearLayer>();
    const auto delayed = ctx->saved_data["delayed"].toOptional<c10::intrusive_ptr<WeightGradQueue>>();
    std::shared_ptr<LinearBackward> tensors;
    at::Tensor dx;
    variable_list ofWeights(2);
    const LinearStep step = refusing(layer->state(), [&] {
      if (at::GradMode::is_enabled())
        throwRuntime("the op sluice::linear has no second derivative: call backward without create_graph");
      tensors = std::make_shared<LinearBackward>(layer, *ctx);
      if (delayed.has_value()) (*delayed)->checkFree(layer->state(), tensors->held().held);
      LinearStep made(*layer);
      if (layer->find("dx")) made.makeResult("dx", tensors->held().tokens, dx);
      tensors->bindInputs(made, dys[0].contiguous().resolve_neg());
      if (!delayed.has_value()) ofWeights = tensors->bindGrads(made);
      return made;
    });
    throwIfFailed(step.run(layer->state(), "backward", tensors->held().held.set));
    if (!delayed.has_value())
      tensors->countChanges();
    else if (tensors->needsWeightGrads())
      (*delayed)->add({&layer->state(), tensors->held().held,
                       [tensors](bool submit) { return tensors->compute(submit); }});
    variable_list grads = {at::Tensor(), dx, ofWeights[0], ofWeights[1], at::Tensor(), at::Tensor()};
    for (size_t i = 0; i < 3; ++i)
      if (grads[1 + i].defined() && !ctx->needs_input_grad(i)) grads[1 + i] = at::Tensor();
    return grads;
  }
};

}  // namespace

LinearLayer::LinearLayer(c10::intrusive_ptr<Ranks> ranks, const std::string& path,
                         const std::string& arguments)
    : ranks_(std::move(ranks)) {
  ranks_->checkProcess();
  ranks_->checkOnCpu("linear layers");
  Program program = refusing(*ranks_, [&] { return load(path); });
  state_ = makeLayerState(*ranks_, program, path, arguments);
  if (delaysWeightGrads_) beside_ = makeBesideState(*ranks_, state_, std::move(program), path);
}

Program LinearLayer::load(const std::string& path) {
  Program program = loadProgram(*ranks_, path);
  const TaskProgram& tables = program.tables();
  for (uint32_t b = 0; b < tables.buffers.size(); ++b)
    if (tables.buffers[b].role == Role::kInput || tables.buffers[b].role == Role::kOutput)
      tensors_.emplace(tables.buffers[b].name, BufferId{b});
  for (const char* name : {"x", "weight", "y"})
    if (!tensors_.contains(name)) throwValue(fmt::format("{}: the program has no tensor '{}'", path, name));
  amaxes_ = valueOrThrow(describeAmaxInputs(tables, static_cast<int>(ranks_->rank())));
  for (const Family& family : tables.families) accumulates_ = accumulates_ || sluice::accumulates(family);
  for (uint32_t e = 0; e < tables.entries.size(); ++e) {
    if (tables.entries[e].name == "forward") continue;
    const bool isDelayed = tables.entries[e].name == "weight_grads";
    delaysWeightGrads_ = delaysWeightGrads_ || isDelayed;
    for (const BufferId id : callersTensors(tables, EntryId{e}, Role::kInput)) {
      backwardReadsX_ = backwardReadsX_ || tables.at(id).name == "x";
      if (isDelayed) readByWeightGrads_.insert(tables.at(id).name);
    }
  }
  return program;
}

const Buffer* LinearLayer::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &state_->program().at(found->second);
}

at::Tensor linear(const c10::intrusive_ptr<LinearLayer>& layer, const at::Tensor& x, const at::Tensor& weight,
                  const OptionalTensor& bias, const OptionalTensor& mainGrad, int64_t tokens, int64_t width,
                  const OptionalTensor& weightAmax, const TensorsOrNone& amaxesUsed,
                  const TensorsOrNone& amaxes, const OptionalQueue& delayed) {
  LayerState& state = layer->state();
  throwIfFailed(state.checkProcess());
  const bool ofBias = bias.has_value() && bias->requires_grad();
  const bool asked = (x.requires_grad() || weight.requires_grad() || ofBias) && at::GradMode::is_enabled();
  Ready ready = refusing(state, [&] {
    return prepare(*layer, x, weight, bias, mainGrad, tokens, width, weightAmax, amaxesUsed, amaxes, delayed,
                   asked);
  });
  if (asked && layer->delaysWeightGrads()) {
    ready.delayed = delayed;
    ready.own = {weight, bias.value_or(at::Tensor())};
    const at::Tensor leaf = makeLeaf(weight);
    if (ready.weight.is_same(weight)) ready.weight = leaf;  // what is saved
    const OptionalTensor biasLeaf = bias.has_value() ? OptionalTensor(makeLeaf(*bias)) : bias;
    return LinearFunction::apply(layer, x, leaf, biasLeaf, mainGrad, ready);
  }
  if (asked) return LinearFunction::apply(layer, x, weight, bias, mainGrad, ready);
  const at::Tensor y = runForward(*layer, ready);
  state.savedSets().release(ready.held);
  return y;
}

}  // namespace sluice
