#include "ops/torch/moe_op.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "ops/torch/errors.h"
#include "ops/torch/token.h"

namespace sluice {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Positions of the tensors among the op's arguments as autograd counts them, and among those that are saved.
enum Argument : size_t { kX = 0, kExpertIds = 1, kExpertWeights = 2, kFirstWeight = 3 };
enum Saved : size_t { kSavedToken = 0, kSavedX = 1, kSavedExpertWeights = 2, kFirstSavedWeight = 3 };

// A checked forward step, and the set that it fills.
struct ReadyForward {
  ForwardStep step;
  HeldSet held;
  // If the program delays weight gradients: where backwards put them, and the weights with what autograd
  // knows of them.
  OptionalQueue delayed = {};
  std::vector<at::Tensor> ownWeights = {};
};

// Runs the step, or begins it and returns it.
c10::intrusive_ptr<Pending> runForward(const c10::intrusive_ptr<Layer>& layer, const ReadyForward& ready,
                                       bool submit) {
  const ForwardStep& step = ready.step;
  LayerState& state = layer->state();
  const StepGuard guard(layer->device());
  const auto fail = [&](const Error& error) {
    state.savedSets().release(ready.held);
    throwRuntime(error.message);
  };
  if (!submit) {
    const Status ran = state.run("forward", step.named(layer->signature()), ready.held.set);
    if (!ran) fail(ran.error());
    return {};
  }
  auto pending = state.submit("forward", step.named(layer->signature()), ready.held.set);
  if (!pending) fail(pending.error());
  std::vector<at::Tensor> tensors = {step.y, step.x, step.expertIds, step.placement, step.expertWeights};
  tensors.insert(tensors.end(), step.weights.begin(), step.weights.end());
  tensors.insert(tensors.end(), step.amaxes.all().begin(), step.amaxes.all().end());
  return c10::make_intrusive<Pending>(layer, state, std::move(tensors), std::move(*pending));
}

// Checks that the program has the gradients that a backward step needs; done in the forward pass, so that the
// caller gets the error there.
void checkTrainable(const LayerSignature& signature, const at::Tensor& x, const at::Tensor& expertWeights,
                    at::TensorList weights, const OptionalQueue& delayed) {
  if (!signature.hasBackward)
    throwRuntime(
        "a gradient is required, but the layer's program has no entry 'backward': compile it for training, "
        "or "
        "call it under torch.no_grad()");
  const auto refuse = [](std::string_view name) {
    throwRuntime(fmt::format("{} requires a gradient, but the layer was compiled without it", name));
  };
  if (x.requires_grad() && !signature.hasDx) refuse("x");
  if (expertWeights.requires_grad() && !signature.hasExpertWeightsGrad) refuse("expert_weights");
  for (size_t w = 0; w < weights.size(); ++w)
    if (weights[w].requires_grad() && !signature.weights[w].hasGrad) refuse(signature.weights[w].name);
  if (signature.delaysWeightGrads && !delayed.has_value())
    throwRuntime("the layer's program delays weight gradients, expected a WeightGradQueue for them");
}

void checkMainGrads(const Layer& layer, const MainGrads& mainGrads) {
  const LayerSignature& signature = layer.signature();
  if (mainGrads.size() != 0 && mainGrads.size() != signature.weights.size())
    throwValue(
        fmt::format("{} main_grads are given for {} weights", mainGrads.size(), signature.weights.size()));
  for (size_t w = 0; w < mainGrads.size(); ++w) {
    const OptionalTensor grad = mainGrads.get(w);
    if (!grad.has_value() || !grad->defined()) continue;
    const WeightSignature& weight = signature.weights[w];
    const std::string name = fmt::format("main_grads[{}] (of {})", w, weight.name);
    if (!weight.hasGrad) throwRuntime(name + " is given, but the layer was compiled without that gradient");
    if (!weight.accumulates)
      throwRuntime(name +
                   " is given, but the layer's program does not accumulate: compile it to (sluicec "
                   "--accumulate)");
    checkTensor(name, *grad, torchType(weight.gradType), weight.shape, layer.device());
  }
}

// The tensors of one step of a backward, which live until it is over.
class StepTensors {
 public:
  explicit StepTensors(Layer& layer) : layer_(layer) {}

  at::Tensor bind(std::string name, at::Tensor tensor) {
    names_.push_back(std::make_unique<std::string>(std::move(name)));
    named_.push_back({*names_.back(), viewTensor(tensor)});
    tensors_.push_back(tensor);
    return tensor;
  }

  void bindWeight(size_t w, const at::Tensor& tensor) {
    const WeightSignature& weight = layer_.signature().weights[w];
    named_.push_back({weight.name, viewTensor(tensor, weight.type), layer_.contentVersion(w, tensor)});
    tensors_.push_back(tensor);
  }

  // A new gradient of a weight; undefined if the step adds it to `mainGrad`.
  at::Tensor bindGrad(size_t w, const OptionalTensor& mainGrad) {
    const WeightSignature& weight = layer_.signature().weights[w];
    const std::string name = weight.name + "_grad";
    if (mainGrad.has_value() && mainGrad->defined()) {
      accumulated_.push_back(bind(name, *mainGrad));
      return {};
    }
    at::Tensor grad = makeTensor(weight.gradType, weight.shape, layer_.grads(), layer_.device());
    if (weight.accumulates) grad.zero_();
    return bind(name, grad);
  }

  void run(LayerState& state, std::string_view entry, HeldSet held) const {
    const StepGuard guard(layer_.device());
    throwIfFailed(state.run(entry, named_, held.set));
    countChanges();
  }

  // Begins the step; it keeps `token`, too.
  c10::intrusive_ptr<Pending> submit(const c10::intrusive_ptr<Layer>& owner, LayerState& state,
                                     std::string_view entry, HeldSet held, const at::Tensor& token) const {
    const StepGuard guard(layer_.device());
    auto pending = valueOrThrow(state.submit(entry, named_, held.set));
    countChanges();
    variable_list used = {token};
    used.insert(used.end(), tensors_.begin(), tensors_.end());
    return c10::make_intrusive<Pending>(owner, state, std::move(used), std::move(pending));
  }

 private:
  void countChanges() const {
    for (const at::Tensor& tensor : accumulated_) tensor.unsafeGetTensorImpl()->bump_version();
  }

  Layer& layer_;
  std::vector<std::unique_ptr<std::string>> names_;
  std::vector<NamedTensor> named_;
  variable_list tensors_, accumulated_;
};

// The weight gradients of a backward that a later step computes.
class DelayedStep {
 public:
  DelayedStep(c10::intrusive_ptr<Layer> layer, HeldSet held, at::Tensor token, MainGrads mainGrads)
      : layer_(std::move(layer)), held_(held), token_(std::move(token)), mainGrads_(std::move(mainGrads)) {}

  // A tensor that the step may read.
  void add(const std::string& name, const at::Tensor& tensor) {
    const std::vector<std::string>& reads = layer_->signature().readByWeightGrads;
    if (std::find(reads.begin(), reads.end(), name) != reads.end()) inputs_.emplace_back(name, tensor);
  }
  // A weight as the op was given it, if its gradient is needed.
  void addWeight(at::Tensor weight) { weights_.push_back(std::move(weight)); }
  bool isNeeded() const {
    return std::any_of(weights_.begin(), weights_.end(),
                       [](const at::Tensor& weight) { return weight.defined(); });
  }

  WeightsAndGrads compute(bool submit) const {
    const at::NoGradGuard isNoStepOfAutograd;
    LayerState& state = layer_->besideState();
    throwIfFailed(state.checkProcess());
    StepTensors step(*layer_);
    WeightsAndGrads made;
    refusing(state, [&] {
      bindInputs(step);
      for (size_t w = 0; w < weights_.size(); ++w)
        if (layer_->signature().weights[w].hasGrad) bindGrad(step, w, made);
    });
    if (submit)
      std::get<2>(made) = step.submit(layer_, state, "weight_grads", held_, token_);
    else
      step.run(state, "weight_grads", held_);
    return made;
  }

 private:
  void bindInputs(StepTensors& step) const {
    const std::vector<WeightSignature>& weights = layer_->signature().weights;
    for (const KeptTensor& input : inputs_) {
      input.check();
      const auto weight = std::find_if(weights.begin(), weights.end(),
                                       [&](const WeightSignature& each) { return each.name == input.name; });
      if (weight == weights.end())
        step.bind(input.name, input.tensor);
      else
        step.bindWeight(static_cast<size_t>(weight - weights.begin()), input.tensor);
    }
  }

  void bindGrad(StepTensors& step, size_t w, WeightsAndGrads& made) const {
    const bool isNeeded = weights_[w].defined();
    at::Tensor grad =
        step.bindGrad(w, isNeeded && mainGrads_.size() != 0 ? mainGrads_.get(w) : OptionalTensor());
    if (!isNeeded) return;
    std::get<0>(made).push_back(weights_[w]);
    if (!grad.defined()) grad = addedElsewhere(weights_[w]);
    std::get<1>(made).push_back(std::move(grad));
  }

  c10::intrusive_ptr<Layer> layer_;
  HeldSet held_;
  at::Tensor token_;  // keeps the set
  MainGrads mainGrads_;
  std::vector<KeptTensor> inputs_;
  variable_list weights_;
};

// One backward step.
class BackwardStep {
 public:
  BackwardStep(c10::intrusive_ptr<Layer> layer, AutogradContext& ctx)
      : layer_(std::move(layer)), signature_(layer_->signature()), ctx_(ctx), tensors_(*layer_) {}

  variable_list run(const at::Tensor& dy) {
    variable_list grads = refusing(layer_->state(), [&] { return prepare(dy); });
    tensors_.run(layer_->state(), "backward", held_);
    if (delayed_ && delayed_->isNeeded())
      queue()->add(
          {&layer_->state(), held_, [delayed = delayed_](bool submit) { return delayed->compute(submit); }});
    for (size_t i = 0; i < grads.size(); ++i)
      if (!ctx_.needs_input_grad(i)) grads[i] = at::Tensor();
    return grads;
  }

 private:
  // Binds what the step reads and writes, and returns the written tensors, by argument.
  variable_list prepare(const at::Tensor& dy) {
    if (at::GradMode::is_enabled())
      throwRuntime("the op sluice::moe has no second derivative: call backward without create_graph");
    const variable_list saved = ctx_.get_saved_variables();
    held_ = findHeldStep(saved[kSavedToken], layer_->state()).held;
    const auto mainGrads = ctx_.saved_data["main_grads"].to<MainGrads>();
    if (signature_.delaysWeightGrads) {
      queue()->checkFree(layer_->state(), held_);
      delayed_ = std::make_shared<DelayedStep>(layer_, held_, saved[kSavedToken], mainGrads);
    }
    bindInputs(dy.contiguous().resolve_neg(), saved);
    const int64_t tokens = dy.size(0);
    variable_list grads(kFirstWeight + signature_.weights.size());
    if (signature_.hasDx)
      grads[kX] =
          tensors_.bind("dx", makeTensor(DType::kBF16, {tokens, signature_.hidden}, layer_->device()));
    if (signature_.hasExpertWeightsGrad)
      grads[kExpertWeights] = tensors_.bind(
          "d_expert_weights", makeTensor(DType::kF32, {tokens, signature_.topK}, layer_->device()));
    const std::vector<at::Tensor> own = ctx_.saved_data["own_weights"].toTensorVector();
    for (size_t w = 0; w < signature_.weights.size(); ++w) {
      const bool isNeeded = ctx_.needs_input_grad(kFirstWeight + w);
      if (delayed_)
        delayed_->addWeight(isNeeded ? own[w] : at::Tensor());
      else if (signature_.weights[w].hasGrad)  // a main_grad that this backward does not need stays unchanged
        grads[kFirstWeight + w] =
            tensors_.bindGrad(w, isNeeded && mainGrads.size() != 0 ? mainGrads.get(w) : OptionalTensor());
    }
    return grads;
  }

  void bindInputs(const at::Tensor& dy, const variable_list& saved) {
    bind("dy", dy);
    if (signature_.backwardReadsX) bind("x", saved[kSavedX]);
    if (signature_.backwardReadsExpertWeights) bind("expert_weights", saved[kSavedExpertWeights]);
    for (size_t w = 0; w < signature_.weights.size(); ++w) {
      if (!signature_.weights[w].readByBackward) continue;
      tensors_.bindWeight(w, saved[kFirstSavedWeight + w]);
      if (delayed_) delayed_->add(signature_.weights[w].name, saved[kFirstSavedWeight + w]);
    }
    const AmaxTensors amaxes(ctx_.saved_data["amaxes"]);
    amaxes.bindBackward(signature_.amaxes,
                        [&](const std::string& name, const at::Tensor& tensor) { bind(name, tensor); });
  }

  void bind(const std::string& name, const at::Tensor& tensor) {
    tensors_.bind(name, tensor);
    if (delayed_) delayed_->add(name, tensor);
  }

  c10::intrusive_ptr<WeightGradQueue> queue() {
    return ctx_.saved_data["delayed"].toCustomClass<WeightGradQueue>();
  }

  c10::intrusive_ptr<Layer> layer_;
  const LayerSignature& signature_;
  AutogradContext& ctx_;
  StepTensors tensors_;
  HeldSet held_;
  std::shared_ptr<DelayedStep> delayed_;  // if the program delays weight gradients
};

struct MoeFunction : torch::autograd::Function<MoeFunction> {
  static at::Tensor forward(AutogradContext* ctx, const c10::intrusive_ptr<Layer>& layer, const at::Tensor& x,
                            const at::Tensor& /*ids*/, const at::Tensor& expertWeights,
                            at::TensorList weights, const MainGrads& mainGrads, const ReadyForward& ready,
                            c10::intrusive_ptr<Pending>* submitted) {
    const LayerSignature& signature = layer->signature();
    const ForwardStep& step = ready.step;
    c10::intrusive_ptr<Pending> pending = runForward(layer, ready, submitted != nullptr);
    if (submitted != nullptr) *submitted = std::move(pending);
    variable_list saved(kFirstSavedWeight + weights.size());
    saved[kSavedToken] = makeToken(layer, layer->state(), {ready.held, step.x.size(0)});
    // saves only the tensors that backward reads, so that others may be changed in place meanwhile
    if (signature.backwardReadsX) saved[kSavedX] = x;
    if (signature.backwardReadsExpertWeights) saved[kSavedExpertWeights] = expertWeights;
    for (size_t w = 0; w < weights.size(); ++w)
      if (signature.weights[w].readByBackward) saved[kFirstSavedWeight + w] = step.weights[w];
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["layer"] = layer;
    ctx->saved_data["main_grads"] = mainGrads;
    ctx->saved_data["amaxes"] = step.amaxes.kept();
    ctx->saved_data["delayed"] = ready.delayed;
    ctx->saved_data["own_weights"] = ready.ownWeights;
    return step.y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const auto layer = ctx->saved_data["layer"].toCustomClass<Layer>();
    variable_list ofTensors = BackwardStep(layer, *ctx).run(dys[0]);
    // autograd expects one per argument, including those that are not tensors
    variable_list grads(1);
    grads.insert(grads.end(), ofTensors.begin(), ofTensors.end());
    grads.resize(grads.size() + 3);
    return grads;
  }
};

// Checks everything that can be wrong with a forward step. `asked`: autograd needs its backward.
ReadyForward readyForward(Layer& layer, const at::Tensor& x, const at::Tensor& ids,
                          const at::Tensor& expertWeights, at::TensorList weights, const MainGrads& mainGrads,
                          const OptionalTensor& placement, const TensorsOrNone& amaxesUsed,
                          const TensorsOrNone& amaxes, const OptionalQueue& delayed, bool asked) {
  const at::NoGradGuard isNoStepOfAutograd;
  const LayerSignature& signature = layer.signature();
  checkMainGrads(layer, mainGrads);
  // wrong numbers of weights are refused by prepareForward()
  if (asked && weights.size() == signature.weights.size())
    checkTrainable(signature, x, expertWeights, weights, delayed);
  ForwardStep step = prepareForward(layer, x, ids, expertWeights, weights, placement, amaxesUsed, amaxes);
  return {std::move(step), valueOrThrow(layer.state().savedSets().take())};
}

// A forward step, and its backward if one is required. It is submitted if there is a place for it.
at::Tensor forwardStep(const c10::intrusive_ptr<Layer>& layer, const at::Tensor& x, const at::Tensor& ids,
                       const at::Tensor& expertWeights, at::TensorList weights, const MainGrads& mainGrads,
                       const OptionalTensor& placement, const TensorsOrNone& amaxesUsed,
                       const TensorsOrNone& amaxes, const OptionalQueue& delayed,
                       c10::intrusive_ptr<Pending>* submitted) {
  LayerState& state = layer->state();
  throwIfFailed(state.checkProcess());
  bool asked = x.requires_grad() || expertWeights.requires_grad();
  for (const at::Tensor& weight : weights) asked = asked || weight.requires_grad();
  asked = asked && at::GradMode::is_enabled();
  ReadyForward ready = refusing(state, [&] {
    return readyForward(*layer, x, ids, expertWeights, weights, mainGrads, placement, amaxesUsed, amaxes,
                        delayed, asked);
  });
  if (asked && layer->signature().delaysWeightGrads) {
    ready.delayed = delayed;
    ready.ownWeights.assign(weights.begin(), weights.end());
    std::vector<at::Tensor> leaves;
    for (size_t w = 0; w < weights.size(); ++w) {
      leaves.push_back(makeLeaf(weights[w]));
      if (ready.step.weights[w].is_same(weights[w])) ready.step.weights[w] = leaves[w];  // what is saved
    }
    return MoeFunction::apply(layer, x, ids, expertWeights, at::TensorList(leaves), mainGrads, ready,
                              submitted);
  }
  if (asked) return MoeFunction::apply(layer, x, ids, expertWeights, weights, mainGrads, ready, submitted);
  c10::intrusive_ptr<Pending> pending = runForward(layer, ready, submitted != nullptr);
  if (submitted != nullptr) *submitted = std::move(pending);
  // no step reads what this one saves, and steps run in order: the next user of the set fills it after this
  // step
  state.savedSets().release(ready.held);
  return ready.step.y;
}

}  // namespace

at::Tensor moe(const c10::intrusive_ptr<Layer>& layer, const at::Tensor& x, const at::Tensor& ids,
               const at::Tensor& expertWeights, at::TensorList weights, const MainGrads& mainGrads,
               const OptionalTensor& placement, const TensorsOrNone& amaxesUsed, const TensorsOrNone& amaxes,
               const OptionalQueue& delayed) {
  return forwardStep(layer, x, ids, expertWeights, weights, mainGrads, placement, amaxesUsed, amaxes, delayed,
                     nullptr);
}

std::tuple<at::Tensor, c10::intrusive_ptr<Pending>> submitMoe(
    const c10::intrusive_ptr<Layer>& layer, const at::Tensor& x, const at::Tensor& ids,
    const at::Tensor& expertWeights, at::TensorList weights, const MainGrads& mainGrads,
    const OptionalTensor& placement, const TensorsOrNone& amaxesUsed, const TensorsOrNone& amaxes,
    const OptionalQueue& delayed) {
  c10::intrusive_ptr<Pending> pending;
  at::Tensor y = forwardStep(layer, x, ids, expertWeights, weights, mainGrads, placement, amaxesUsed, amaxes,
                             delayed, &pending);
  return {std::move(y), std::move(pending)};
}

}  // namespace sluice
