// The errors of what a program computed, against its evaluation in double precision.
#pragma once

#include <cmath>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/verify.h"
#include "tools/evaluate/values.h"
#include "tools/io/tensor.h"

namespace sluice::tools {

// The entries that compute some tensor of `outputs`, and those that these need, in the program's order.
std::vector<EntryId> entriesFor(const TaskProgram& program, const TensorMap& outputs);

// The error of each tensor of `outputs`, in the program's order; names are those of the program's buffers
// and live as long as it. Both lists are by rank, and all ranks have the same outputs. Errors: those of
// evaluate(), with the tensors' names; a tensor that is no output of the program; one of a wrong type or
// shape.
Expected<std::vector<OutputError>> outputErrors(const VerifiedProgram& program,
                                                const std::vector<TensorMap>& inputs,
                                                const std::vector<TensorMap>& outputs, int threads);

// What rounding alone gives: for each tensor of `outputs`, as outputErrors() has them, the relative error
// that a right run has on the average, by repeated evaluation with random errors of the size of rounding
// wherever a number is stored. Where sums cancel, as in the gradients of few tokens, it is far above the
// rounding of one number. Errors: those of outputErrors().
Expected<std::vector<OutputError>> roundingErrors(const VerifiedProgram& program,
                                                  const std::vector<TensorMap>& inputs,
                                                  const std::vector<TensorMap>& outputs, int threads);

// So many times what rounding gives on the average is still taken for rounding: six standard deviations, and
// what the average itself may be off.
inline constexpr double kRoundingLimit = 8;

// Whether an error is no more than `tolerance`, or may come from rounding, of which `rounding` is the
// average.
inline bool isAccepted(double error, double tolerance, double rounding) {
  return error <= tolerance || (std::isfinite(error) && error <= kRoundingLimit * rounding);
}

}  // namespace sluice::tools
