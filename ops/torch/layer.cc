#include "ops/torch/layer.h"

#include <fmt/format.h>

#include "ops/torch/errors.h"

namespace sluice {
namespace {

// A weight in the program's type. Float32 parameters give a rounded copy; their gradients stay float32,
// because autograd converts gradients to the parameter's type.
at::Tensor prepareWeight(const WeightSignature& signature, const at::Tensor& weight,
                         const at::Device& device) {
  const at::ScalarType type = torchType(signature.type);
  const bool rounds = type == at::kBFloat16 && weight.defined() && weight.scalar_type() == at::kFloat;
  checkTensor(signature.name, weight, rounds ? at::kFloat : type, signature.shape, device);
  return rounds ? weight.to(type) : weight;
}

}  // namespace

Layer::Layer(c10::intrusive_ptr<Ranks> ranks, const std::string& path,
             const std::vector<std::string>& weights, const std::string& arguments)
    : ranks_(std::move(ranks)) {
  ranks_->checkProcess();
  const StepGuard guard(device());
  Program program = refusing(*ranks_, [&] {
    Program loaded = loadProgram(*ranks_, path);
    auto signature = readSignature(loaded.tables(), static_cast<int>(ranks_->rank()), weights);
    if (!signature) throwValue(fmt::format("{}: {}", path, signature.error().message));
    signature_ = *std::move(signature);
    return loaded;
  });
  state_ = makeLayerState(*ranks_, program, path, arguments);
  if (signature_.delaysWeightGrads) beside_ = makeBesideState(*ranks_, state_, std::move(program), path);
}

uint64_t Layer::contentVersion(size_t w, const at::Tensor& weight) const {
  // tensors of inference mode have no count of changes
  if (!packsFrozen_ || weight.requires_grad() || weight.is_inference()) return 0;
  const uint32_t version = weight.unsafeGetTensorImpl()->version_counter().current_version();
  const std::lock_guard lock(seenMutex_);
  const auto seen = seen_.find(w);
  const bool same = seen != seen_.end() && !seen->second.tensor.expired() &&
                    seen->second.data == weight.data_ptr() && seen->second.version == version;
  return same ? seen->second.content : 0;
}

uint64_t Layer::keepContentVersion(size_t w, const at::Tensor& weight) {
  if (const uint64_t known = contentVersion(w, weight); known != 0) return known;
  if (!packsFrozen_ || weight.requires_grad() || weight.is_inference()) return 0;
  const std::lock_guard lock(seenMutex_);
  SeenWeight now{c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>(weight.getIntrusivePtr()),
                 weight.data_ptr(), weight.unsafeGetTensorImpl()->version_counter().current_version(),
                 ++contents_};
  seen_.insert_or_assign(w, std::move(now));
  return contents_;
}

ForwardStep prepareForward(Layer& layer, const at::Tensor& x, const at::Tensor& ids,
                           const at::Tensor& expertWeights, at::TensorList weights,
                           const OptionalTensor& placement, const TensorsOrNone& amaxesUsed,
                           const TensorsOrNone& amaxes) {
  const LayerSignature& signature = layer.signature();
  if (weights.size() != signature.weights.size())
    throwValue(
        fmt::format("{} weights are given, but the layer has {}", weights.size(), signature.weights.size()));
  checkTensor("x", x, at::kBFloat16, {kAnySize, signature.hidden}, layer.device());
  const int64_t tokens = x.size(0);
  if (tokens > signature.maxTokens)
    throwValue(fmt::format("x has {} tokens, but the layer was compiled for at most {}", tokens,
                           signature.maxTokens));
  ForwardStep step;
  step.x = x;
  step.expertIds = expertIds(ids, tokens, signature.topK, signature.experts, layer.device());
  if (signature.places > 0) {
    step.placement = placement.value_or(at::Tensor());
    checkTensor("placement", step.placement, at::kInt, {signature.places}, layer.device());
  } else if (placement.has_value() && placement->defined()) {
    throwValue("a placement is given, but the layer was compiled without");
  }
  checkTensor("expert_weights", expertWeights, at::kFloat, {tokens, signature.topK}, layer.device());
  step.expertWeights = expertWeights;
  for (size_t w = 0; w < weights.size(); ++w) {
    step.weights.push_back(prepareWeight(signature.weights[w], weights[w], layer.device()));
    // a rounded copy is freed after the step
    const bool rounded = !step.weights[w].is_same(weights[w]);
    step.contents.push_back(rounded ? 0 : layer.keepContentVersion(w, weights[w]));
  }
  step.amaxes = AmaxTensors(signature.amaxes, amaxesUsed, amaxes);
  step.y = makeTensor(DType::kBF16, {tokens, signature.outHidden}, layer.device());
  return step;
}

std::vector<NamedTensor> ForwardStep::named(const LayerSignature& signature) const {
  std::vector<NamedTensor> tensors = {
      {"x", viewTensor(x)}, {"expert_ids", viewTensor(expertIds)}, {"y", viewTensor(y)}};
  if (placement.defined()) tensors.push_back({"placement", viewTensor(placement)});
  if (signature.readsExpertWeights) tensors.push_back({"expert_weights", viewTensor(expertWeights)});
  for (size_t w = 0; w < weights.size(); ++w)
    if (signature.weights[w].readByForward)
      tensors.push_back(
          {signature.weights[w].name, viewTensor(weights[w], signature.weights[w].type), contents[w]});
  amaxes.bindForward(signature.amaxes, [&](const std::string& name, const at::Tensor& tensor) {
    tensors.push_back({name, viewTensor(tensor)});
  });
  return tensors;
}

}  // namespace sluice
