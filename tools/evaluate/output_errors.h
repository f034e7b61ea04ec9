// The errors of a program's results, compared with its evaluation in double precision.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/verify.h"
#include "tools/evaluate/evaluate.h"
#include "tools/evaluate/values.h"
#include "tools/io/tensor.h"

namespace sluice::tools {

// The entries that compute tensors of `outputs`, and those that these entries need, in the program's order.
std::vector<EntryId> entriesFor(const TaskProgram& program, const TensorMap& outputs);

// T of every rank as results show it; empty if inputs do, or if no result has tokens. `outputs` is by rank.
std::vector<int64_t> tokensOfOutputs(const TaskProgram& program, const std::vector<BufferId>& inputs,
                                     const std::vector<TensorMap>& outputs);

// Reads an output of a rank whose Tensor is without data.
using OutputReader = std::function<Expected<Tensor>(size_t rank, const std::string& name)>;

// The error of each tensor of `outputs`, in the program's order; with `exactFactors` from what the program
// would give if rows did not become codes and products did not round their factors, so that it includes what
// they cost. Tensors without data are read when their reference is complete. Names refer to the names of the
// program's buffers, which must outlive them. Both lists are by rank, and all ranks must have the same
// outputs. Errors: from evaluate(), with the tensors' names; a tensor that is no output of the program; a
// wrong type or shape; from `read`.
Expected<std::vector<OutputError>> outputErrors(const VerifiedProgram& program,
                                                const std::vector<TensorMap>& inputs,
                                                const std::vector<TensorMap>& outputs, int threads,
                                                bool exactFactors = false, const EvaluateHook& before = {},
                                                const OutputReader& read = {});

// Whether the program makes codes of rows, or products round their factors.
bool roundsFactors(const TaskProgram& program);

// The effect of rounding alone: for each tensor of `outputs`, in the order of outputErrors(), the average
// relative error of a correct run, by repeated evaluation with random errors of the size of rounding wherever
// a number is stored. If sums cancel, as in the gradients of few tokens, it is far above the rounding error
// of one number. Steps of the hook count all evaluations. Errors: from outputErrors().
Expected<std::vector<OutputError>> roundingErrors(const VerifiedProgram& program,
                                                  const std::vector<TensorMap>& inputs,
                                                  const std::vector<TensorMap>& outputs, int threads,
                                                  const EvaluateHook& before = {});

// An error up to this multiple of the average effect of rounding counts as rounding: six standard deviations,
// plus the possible error of the average itself.
inline constexpr double kRoundingLimit = 8;

// Whether an error is at most `tolerance`, or may come from rounding, whose average effect is `rounding`.
inline bool isAccepted(double error, double tolerance, double rounding) {
  return error <= tolerance || (std::isfinite(error) && error <= kRoundingLimit * rounding);
}

}  // namespace sluice::tools
