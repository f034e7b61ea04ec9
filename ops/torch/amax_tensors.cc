#include "ops/torch/amax_tensors.h"

#include <fmt/format.h>

#include "ops/torch/errors.h"

namespace sluice {

std::vector<AmaxDescription> describeAmaxes(const std::vector<AmaxSignature>& amaxes) {
  std::vector<AmaxDescription> described;
  for (const AmaxSignature& amax : amaxes) described.emplace_back(amax.name, amax.shape, amax.isOfForward());
  return described;
}

AmaxTensors::AmaxTensors(const std::vector<AmaxSignature>& amaxes, const TensorsOrNone& used,
                         const TensorsOrNone& found) {
  const size_t counts[] = {used.has_value() ? used->size() : 0, found.has_value() ? found->size() : 0};
  if (counts[0] != amaxes.size() || counts[1] != amaxes.size())
    throwValue(fmt::format("{} amaxes_used and {} amaxes are given, but the layer has {}", counts[0],
                           counts[1], amaxes.size()));
  for (size_t i = 0; i < amaxes.size(); ++i) {
    tensors_.push_back(used->get(i));
    checkTensor(amaxes[i].used, tensors_.back(), at::kFloat, amaxes[i].shape);
  }
  for (size_t i = 0; i < amaxes.size(); ++i) {
    tensors_.push_back(found->get(i));
    checkTensor(amaxes[i].found, tensors_.back(), at::kFloat, amaxes[i].shape);
  }
}

void AmaxTensors::bindForward(const std::vector<AmaxSignature>& amaxes, const Bind& bind) const {
  for (size_t i = 0; i < amaxes.size(); ++i) {
    if (amaxes[i].readByForward) bind(amaxes[i].used, tensors_[i]);
    if (amaxes[i].writtenByForward) bind(amaxes[i].found, tensors_[amaxes.size() + i]);
  }
}

void AmaxTensors::bindBackward(const std::vector<AmaxSignature>& amaxes, const Bind& bind) const {
  for (size_t i = 0; i < amaxes.size(); ++i) {
    if (amaxes[i].readByBackward) bind(amaxes[i].used, tensors_[i]);
    if (amaxes[i].writtenByBackward) bind(amaxes[i].found, tensors_[amaxes.size() + i]);
  }
}

}  // namespace sluice
