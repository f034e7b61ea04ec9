#include "ops/torch/linear_op.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

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
  Status run(std::string_view entry, uint32_t set, int64_t common = 0) const {
    return layer_.state().run(entry, tensors_, set, {rows_, nullptr, common});
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
};

Ready prepare(LinearLayer& layer, const at::Tensor& x, const at::Tensor& weight, const OptionalTensor& bias,
              const OptionalTensor& mainGrad, int64_t tokens, int64_t width, const OptionalTensor& weightAmax,
              const TensorsOrNone& amaxesUsed, const TensorsOrNone& amaxes, bool asked) {
  const at::NoGradGuard isNoStepOfAutograd;
  if (asked && !layer.find("dy"))
    throwRuntime("a gradient is required, but the program has no entry 'backward'");
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
  if (const Status ran = step.run("forward", ready.held.set, ready.width); !ran) {
    layer.state().savedSets().release(ready.held);
    throwRuntime(ran.error().message);
  }
  return y;
}

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
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const auto layer = ctx->saved_data["layer"].toCustomClass<LinearLayer>();
    HeldStep held;
    at::Tensor dx, weightGrad, biasGrad, changed;
    const LinearStep step = refusing(layer->state(), [&] {
      if (at::GradMode::is_enabled())
        throwRuntime("the op sluice::linear has no second derivative: call backward without create_graph");
      const variable_list saved = ctx->get_saved_variables();
      held = findHeldStep(saved[0], layer->state());
      LinearStep made(*layer);
      dys[0] = dys[0].contiguous().resolve_neg();
      made.bind("dy", dys[0]);
      if (layer->find("dx")) {
        made.makeResult("dx", held.tokens, dx);
        made.bind("weight", saved[1]);
        if (layer->find(kWeightAmax)) made.bind(kWeightAmax, ctx->saved_data["weight_amax"].toTensor());
      }
      const AmaxTensors amaxes(ctx->saved_data["amaxes"]);
      amaxes.bindBackward(layer->amaxes(), [&](const std::string& name, const at::Tensor& tensor) {
        made.bind(name, tensor);
      });
      if (layer->backwardReadsX()) made.bind("x", saved[2]);
      const auto mainGrad = ctx->saved_data["main_grad"].toOptional<at::Tensor>();
      if (layer->find("weight_grad")) {
        // a main_grad that this backward does not need stays unchanged
        const bool adds = mainGrad.has_value() && ctx->needs_input_grad(1);
        const at::Tensor grad = adds ? *mainGrad : gradient(*layer, "weight_grad");
        (adds ? changed : weightGrad) = grad;
        made.bind("weight_grad", grad);
      }
      if (layer->find("bias_grad")) {
        biasGrad = gradient(*layer, "bias_grad");
        made.bind("bias_grad", biasGrad);
      }
      return made;
    });
    throwIfFailed(step.run("backward", held.held.set));
    if (changed.defined()) changed.unsafeGetTensorImpl()->bump_version();
    variable_list grads = {at::Tensor(), dx, weightGrad, biasGrad, at::Tensor(), at::Tensor()};
    for (size_t i = 0; i < 3; ++i)
      if (grads[1 + i].defined() && !ctx->needs_input_grad(i)) grads[1 + i] = at::Tensor();
    return grads;
  }

 private:
  static at::Tensor gradient(const LinearLayer& layer, std::string_view name) {
    const Buffer& buffer = layer.at(name);
    at::Tensor grad = makeTensor(buffer.type, shapeOf(buffer, name == "bias_grad"), layer.grads());
    if (layer.accumulates()) grad.zero_();
    return grad;
  }
};

}  // namespace

LinearLayer::LinearLayer(c10::intrusive_ptr<Ranks> ranks, const std::string& path,
                         const std::string& arguments)
    : ranks_(std::move(ranks)) {
  ranks_->checkProcess();
  ranks_->checkOnCpu("linear layers");
  Program program = refusing(*ranks_, [&] { return load(path); });
  state_ = makeLayerState(*ranks_, std::move(program), path, arguments);
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
  for (const Family& family : tables.families) {
    accumulates_ = accumulates_ || sluice::accumulates(family);
    if (tables.at(family.entry).name == "backward")
      for (const BufferId id : family.reads)
        backwardReadsX_ = backwardReadsX_ || (id && tables.at(id).name == "x");
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
                  const TensorsOrNone& amaxes) {
  LayerState& state = layer->state();
  throwIfFailed(state.checkProcess());
  const bool ofBias = bias.has_value() && bias->requires_grad();
  const bool asked = (x.requires_grad() || weight.requires_grad() || ofBias) && at::GradMode::is_enabled();
  const Ready ready = refusing(state, [&] {
    return prepare(*layer, x, weight, bias, mainGrad, tokens, width, weightAmax, amaxesUsed, amaxes, asked);
  });
  if (asked) return LinearFunction::apply(layer, x, weight, bias, mainGrad, ready);
  const at::Tensor y = runForward(*layer, ready);
  state.savedSets().release(ready.held);
  return y;
}

}  // namespace sluice
