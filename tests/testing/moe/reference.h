// The MoE-FFN layer in double precision, straight from its formulas, over all ranks.
//
// Independent of slots, tasks and kernels: tokens are grouped by expert, and every expert is a few matrix
// products. With g, u = x @ gate_up_weight (its halves), act = f(g) * u (runtime/abi/activation.h;
// swiglu_clamp also clamps u; without a gate there is g only), w an expert weight: also cuts u), w an expert
// weight:
//   y[t]                = sum over pairs of w * (act @ down_weight)
//   d_expert_weights    = dy . (act @ down_weight)
//   dx[t]               = sum over pairs of (dg, du) @ gate_up_weight', with da = w * dy @ down_weight',
//                         dg = da * d act / dg, du = da * d act / du
//   down_weight_grad    = sum over rows of act' (w dy),  gate_up_weight_grad = sum over rows of x' (dg, du)
// A pair with expert id -1 is masked: it adds nothing, and its gradient is 0.
//
// Free functions on views; any thread. Memory: 24 bytes per element of x, and two weight gradients in all.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/expected.h"
#include "tests/testing/moe/dims.h"
#include "tools/evaluate/values.h"
#include "tools/io/tensor.h"

namespace sluice::tools {

// Tensors of one rank, in memory that the caller owns; shapes as in moeTensor(). If no rank has dy, only y is
// computed.
struct MoeInputs {
  int64_t tokens = 0;
  const BFloat16* x = nullptr;
  const int32_t* expertIds = nullptr;
  const float* expertWeights = nullptr;
  const BFloat16* gateUpWeight = nullptr;
  const BFloat16* downWeight = nullptr;
  const BFloat16* dy = nullptr;
};

// The results of a program; null: not compared.
struct MoeOutputs {
  const BFloat16* y = nullptr;
  const BFloat16* dx = nullptr;
  const float* dExpertWeights = nullptr;
  const float* gateUpWeightGrad = nullptr;
  const float* downWeightGrad = nullptr;
};

// Views of the tensors of a file. Errors: a missing input, a wrong type or shape, outputs with another number
// of tokens. A missing output is null.
Expected<MoeInputs> moeInputs(const MoeDims& dims, int rank, const TensorMap& tensors);
Expected<MoeOutputs> moeOutputs(const MoeDims& dims, int rank, const TensorMap& tensors, int64_t tokens);

// The results of one rank per token: [T,H], [T,H], [T,K].
struct MoeTokenResults {
  std::vector<double> y;
  std::vector<double> dx;
  std::vector<double> dExpertWeights;
};

// Called once per expert, in order, with its gradients [H,2I] and [I,H].
using ExpertGradients =
    std::function<void(int expert, std::span<const double> gateUp, std::span<const double> down)>;

// Errors: an expert id out of range or repeated in a row (rank, token).
Expected<std::vector<MoeTokenResults>> moeReference(const MoeDims& dims, std::span<const MoeInputs> ranks,
                                                    const ExpertGradients& gradients, int threads);

// One entry for each output that exists at every rank, in the order of MoeOutputs.
Expected<std::vector<OutputError>> moeErrors(const MoeDims& dims, std::span<const MoeInputs> inputs,
                                             std::span<const MoeOutputs> outputs, int threads);

}  // namespace sluice::tools
