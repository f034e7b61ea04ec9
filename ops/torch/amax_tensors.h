// The tensors of a step for its layer's amaxes (AmaxSignature), as the ops get them from Python.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "ops/torch/layer_signature.h"
#include "ops/torch/tensors.h"

namespace sluice {

using TensorsOrNone = c10::optional<c10::List<at::Tensor>>;

// What the op's layer says of each: name, shape, and whether it is of forwards.
using AmaxDescription = std::tuple<std::string, std::vector<int64_t>, bool>;
std::vector<AmaxDescription> describeAmaxes(const std::vector<AmaxSignature>& amaxes);

// A value type: tensors in the order of the layer's amaxes. A step reads `used`, and writes the tensors of
// `found` that its entry computes.
class AmaxTensors {
 public:
  AmaxTensors() = default;
  // Throws unless there are tensors of the right type and shape for all amaxes.
  AmaxTensors(const std::vector<AmaxSignature>& amaxes, const TensorsOrNone& used,
              const TensorsOrNone& found);

  // What autograd keeps between a forward and its backward.
  c10::IValue kept() const { return tensors_; }
  explicit AmaxTensors(const c10::IValue& kept) : tensors_(kept.toTensorVector()) {}

  // Calls bind(name, tensor) for the tensors of an entry. `amaxes` has the names.
  using Bind = std::function<void(const std::string&, const at::Tensor&)>;
  void bindForward(const std::vector<AmaxSignature>& amaxes, const Bind& bind) const;
  void bindBackward(const std::vector<AmaxSignature>& amaxes, const Bind& bind) const;

  const std::vector<at::Tensor>& all() const { return tensors_; }

 private:
  std::vector<at::Tensor> tensors_;  // those that are used, then those that are found
};

}  // namespace sluice
