#include "ops/torch/moe_op.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

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
                    at::TensorList weights) {
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

// The tensors of one backward step.
class BackwardStep {
 public:
  BackwardStep(Layer& layer, AutogradContext& ctx)
      : layer_(layer), signature_(layer.signature()), ctx_(ctx) {}

  variable_list run(const at::Tensor& dy) {
    HeldSet held;
    variable_list grads = refusing(layer_.state(), [&] { return prepare(dy, held); });
    const StepGuard guard(layer_.device());
    throwIfFailed(layer_.state().run("backward", named_, held.set));
    for (const at::Tensor& tensor : accumulated_) tensor.unsafeGetTensorImpl()->bump_version();
    for (size_t i = 0; i < grads.size(); ++i)
      if (!ctx_.needs_input_grad(i)) grads[i] = at::Tensor();
    return grads;
  }

 private:
  // Binds what the step reads and writes, and returns the written tensors, by argument.
  variable_list prepare(const at::Tensor& dy, HeldSet& held) {
    if (at::GradMode::is_enabled())
      throwRuntime("the op sluice::moe has no second derivative: call backward without create_graph");
    const variable_list saved = ctx_.get_saved_variables();
    held = findHeldStep(saved[kSavedToken], layer_.state()).held;
    bind("dy", dy.contiguous().resolve_neg());
    if (signature_.backwardReadsX) bind("x", saved[kSavedX]);
    if (signature_.backwardReadsExpertWeights) bind("expert_weights", saved[kSavedExpertWeights]);
    for (size_t w = 0; w < signature_.weights.size(); ++w)
      if (signature_.weights[w].readByBackward) bindWeight(w, saved[kFirstSavedWeight + w]);
    const AmaxTensors amaxes(ctx_.saved_data["amaxes"]);
    amaxes.bindBackward(signature_.amaxes,
                        [&](const std::string& name, const at::Tensor& tensor) { bind(name, tensor); });
    const int64_t tokens = dy.size(0);
    variable_list grads(kFirstWeight + signature_.weights.size());
    if (signature_.hasDx)
      grads[kX] = bind("dx", makeTensor(DType::kBF16, {tokens, signature_.hidden}, layer_.device()));
    if (signature_.hasExpertWeightsGrad)
      grads[kExpertWeights] =
          bind("d_expert_weights", makeTensor(DType::kF32, {tokens, signature_.topK}, layer_.device()));
    for (size_t w = 0; w < signature_.weights.size(); ++w)
      if (signature_.weights[w].hasGrad) grads[kFirstWeight + w] = bindGrad(w);
    return grads;
  }

  at::Tensor bind(std::string name, at::Tensor tensor) {
    names_.push_back(std::make_unique<std::string>(std::move(name)));
    named_.push_back({*names_.back(), viewTensor(tensor)});
    tensors_.push_back(tensor);
    return tensor;
  }

  void bindWeight(size_t w, const at::Tensor& tensor) {
    const WeightSignature& weight = signature_.weights[w];
    named_.push_back({weight.name, viewTensor(tensor, weight.type), layer_.contentVersion(w, tensor)});
    tensors_.push_back(tensor);
  }

  // The gradient for autograd; undefined if it is added to a main_grad.
  at::Tensor bindGrad(size_t w) {
    const WeightSignature& weight = signature_.weights[w];
    const std::string name = weight.name + "_grad";
    const auto mainGrads = ctx_.saved_data["main_grads"].to<MainGrads>();
    // a main_grad that this backward does not need stays unchanged
    if (mainGrads.size() != 0 && ctx_.needs_input_grad(kFirstWeight + w)) {
      const OptionalTensor grad = mainGrads.get(w);
      if (grad.has_value() && grad->defined()) {
        accumulated_.push_back(bind(name, *grad));
        return {};
      }
    }
    at::Tensor grad = makeTensor(weight.gradType, weight.shape, layer_.grads(), layer_.device());
    if (weight.accumulates) grad.zero_();
    return bind(name, grad);
  }

  Layer& layer_;
  const LayerSignature& signature_;
  AutogradContext& ctx_;
  std::vector<std::unique_ptr<std::string>> names_;
  std::vector<NamedTensor> named_;
  variable_list tensors_;  // kept until the step is done
  variable_list accumulated_;
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
    return step.y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const auto layer = ctx->saved_data["layer"].toCustomClass<Layer>();
    variable_list ofTensors = BackwardStep(*layer, *ctx).run(dys[0]);
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
                          const TensorsOrNone& amaxes, bool asked) {
  const at::NoGradGuard isNoStepOfAutograd;
  const LayerSignature& signature = layer.signature();
  checkMainGrads(layer, mainGrads);
  // wrong numbers of weights are refused by prepareForward()
  if (asked && weights.size() == signature.weights.size())
    checkTrainable(signature, x, expertWeights, weights);
  ForwardStep step = prepareForward(layer, x, ids, expertWeights, weights, placement, amaxesUsed, amaxes);
  return {std::move(step), valueOrThrow(layer.state().savedSets().take())};
}

// A forward step, and its backward if one is required. It is submitted if there is a place for it.
at::Tensor forwardStep(const c10::intrusive_ptr<Layer>& layer, const at::Tensor& x, const at::Tensor& ids,
                       const at::Tensor& expertWeights, at::TensorList weights, const MainGrads& mainGrads,
                       const OptionalTensor& placement, const TensorsOrNone& amaxesUsed,
                       const TensorsOrNone& amaxes, c10::intrusive_ptr<Pending>* submitted) {
  LayerState& state = layer->state();
  throwIfFailed(state.checkProcess());
  bool asked = x.requires_grad() || expertWeights.requires_grad();
  for (const at::Tensor& weight : weights) asked = asked || weight.requires_grad();
  asked = asked && at::GradMode::is_enabled();
  const ReadyForward ready = refusing(state, [&] {
    return readyForward(*layer, x, ids, expertWeights, weights, mainGrads, placement, amaxesUsed, amaxes,
                        asked);
  });
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
               const OptionalTensor& placement, const TensorsOrNone& amaxesUsed,
               const TensorsOrNone& amaxes) {
  return forwardStep(layer, x, ids, expertWeights, weights, mainGrads, placement, amaxesUsed, amaxes,
                     nullptr);
}

std::tuple<at::Tensor, c10::intrusive_ptr<Pending>> submitMoe(
    const c10::intrusive_ptr<Layer>& layer, const at::Tensor& x, const at::Tensor& ids,
    const at::Tensor& expertWeights, at::TensorList weights, const MainGrads& mainGrads,
    const OptionalTensor& placement, const TensorsOrNone& amaxesUsed, const TensorsOrNone& amaxes) {
  c10::intrusive_ptr<Pending> pending;
  at::Tensor y =
      forwardStep(layer, x, ids, expertWeights, weights, mainGrads, placement, amaxesUsed, amaxes, &pending);
  return {std::move(y), std::move(pending)};
}

}  // namespace sluice
