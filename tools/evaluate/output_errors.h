// The errors of what a program computed, against its evaluation in double precision.
#pragma once

#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/verify.h"
#include "tools/io/tensor.h"
#include "tools/moe/reference.h"

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

}  // namespace sluice::tools
