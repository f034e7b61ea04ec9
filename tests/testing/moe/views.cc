// Views of the tensors of a file as the inputs and outputs of the layer.
#include <fmt/format.h>

#include "tests/testing/moe/reference.h"

namespace sluice::tools {
namespace {

// Null: there is no such tensor.
Expected<const Tensor*> find(const MoeDims& dims, const TensorMap& tensors, std::string_view name, int rank,
                             int64_t tokens) {
  const auto it = tensors.find(std::string(name));
  if (it == tensors.end()) return static_cast<const Tensor*>(nullptr);
  const Tensor& tensor = it->second;
  const MoeTensor expected = moeTensor(dims, name, rank, tokens);
  if (tensor.type() != expected.type || tensor.shape() != expected.shape)
    return Error{fmt::format("tensor '{}': found {}, expected {}", name,
                             describeTensor(tensor.type(), tensor.shape()),
                             describeTensor(expected.type, expected.shape))};
  return &tensor;
}

// Collects the pointers of one file; keeps the first error.
class Binder {
 public:
  Binder(const MoeDims& dims, int rank, const TensorMap& tensors, int64_t tokens)
      : dims_(dims), tensors_(tensors), rank_(rank), tokens_(tokens) {}

  template <class T>
  void bind(std::string_view name, bool required, const T*& pointer) {
    if (!status_) return;
    const Expected<const Tensor*> tensor = find(dims_, tensors_, name, rank_, tokens_);
    if (!tensor) {
      status_ = tensor.error();
    } else if (*tensor) {
      pointer = (*tensor)->as<T>();
    } else if (required) {
      status_ = Error{fmt::format("tensor '{}' is missing", name)};
    }
  }
  const Status& status() const { return status_; }

 private:
  const MoeDims& dims_;
  const TensorMap& tensors_;
  int rank_;
  int64_t tokens_;
  Status status_;
};

}  // namespace

Expected<MoeInputs> moeInputs(const MoeDims& dims, int rank, const TensorMap& tensors) {
  const auto x = tensors.find("x");
  if (x == tensors.end()) return Error{"tensor 'x' is missing"};
  if (x->second.shape().empty()) return Error{"tensor 'x': found a scalar, expected [T, hidden]"};
  MoeInputs in;
  in.tokens = x->second.shape()[0];
  Binder binder(dims, rank, tensors, in.tokens);
  binder.bind("x", true, in.x);
  binder.bind("expert_ids", true, in.expertIds);
  binder.bind("expert_weights", true, in.expertWeights);
  binder.bind("gate_up_weight", true, in.gateUpWeight);
  binder.bind("down_weight", true, in.downWeight);
  binder.bind("dy", false, in.dy);
  if (!binder.status()) return binder.status().error();
  return in;
}

Expected<MoeOutputs> moeOutputs(const MoeDims& dims, int rank, const TensorMap& tensors, int64_t tokens) {
  MoeOutputs out;
  Binder binder(dims, rank, tensors, tokens);
  binder.bind("y", false, out.y);
  binder.bind("dx", false, out.dx);
  binder.bind("d_expert_weights", false, out.dExpertWeights);
  binder.bind("gate_up_weight_grad", false, out.gateUpWeightGrad);
  binder.bind("down_weight_grad", false, out.downWeightGrad);
  if (!binder.status()) return binder.status().error();
  return out;
}

}  // namespace sluice::tools
