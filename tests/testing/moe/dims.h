// MoeDims: the sizes of one MoE-FFN layer, and the names and shapes of its tensors.
//
// Value type. The names are those of graphs/moe_ffn; programs with other tensors do not count as MoE-FFN
// layers here.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/abi/kernels.h"
#include "runtime/base/dtype.h"
#include "runtime/base/expected.h"
#include "runtime/program/program.h"
#include "tools/moe/inputs.h"

namespace sluice::tools {

struct MoeDims {
  int ranks = 1;
  int experts = 1;  // of all ranks; deal() gives their owners
  int topK = 1;
  int64_t maxTokens = 1;  // per rank
  int64_t hidden = 1;
  int64_t inter = 1;
  ops::ActivationKind activation = ops::ActivationKind::kSwiglu;
  double limit = 0;  // of kinds that clamp

  int64_t up() const { return findInfo(activation).inputs * inter; }  // columns of the first product
  ExpertDeal deal() const { return {{ranks}, experts}; }
  friend bool operator==(const MoeDims&, const MoeDims&) = default;
};

// Type and shape of the layer's tensor `name` at rank `rank` with `tokens` tokens; an empty name if there is
// none.
struct MoeTensor {
  std::string_view name;
  DType type = DType::kF32;
  std::vector<int64_t> shape;
};
MoeTensor moeTensor(const MoeDims& dims, std::string_view name, int rank, int64_t tokens);

// The sizes, from the tensors gate_up_weight and down_weight, and the activation. Errors: these tensors are
// missing; a tensor has another shape than in the layer; there are other tensors (except saved rows), other
// families, or several activations. Gradients may be added to the old content of their tensors.
Expected<MoeDims> moeDimsOf(const TaskProgram& program);

// The part of a program of the layer that determines its inputs; it has no tasks.
TaskProgram sketchOf(const MoeDims& dims);

// All inputs of one rank of the layer, as makeProgramInputs() makes them for every program of it.
TensorMap makeInputs(const MoeDims& dims, const InputsSpec& spec, int rank, int64_t tokens);

}  // namespace sluice::tools
