// The tensors that some entries of a program read and write, checked against files and made anew.
//
// Free functions on values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"
#include "tools/io/tensor.h"

namespace sluice::tools {

// The entries of a comma-separated list, or all of them where it is empty. Errors: an unknown entry (lists
// those there are).
Expected<std::vector<EntryId>> findEntries(const TaskProgram& program, std::string_view names);

// Inputs and outputs of the entries, each once, in order of the program's buffers.
struct EntryTensors {
  std::vector<BufferId> inputs;
  std::vector<BufferId> outputs;
};
EntryTensors tensorsOf(const TaskProgram& program, const std::vector<EntryId>& entries);

// "BF16 [T, 2048]".
std::string describeBuffer(const Buffer& buffer);

// T of a rank whose file holds `tensors`. Errors: a missing input; a tensor that is no input of the program;
// a wrong type or shape, a T above max_tokens or not that of the other tensors (tensor, found, expected).
Expected<int64_t> checkInputs(const TaskProgram& program, const std::vector<BufferId>& inputs,
                              const TensorMap& tensors);

// Zero-filled tensors for the outputs that the caller binds: all but those of extent rows.
TensorMap makeOutputs(const TaskProgram& program, const std::vector<BufferId>& outputs, int64_t tokens);

// Floating-point operations of the matrix products of an entry for each row: 2 a product and sum.
int64_t flopsPerRow(const TaskProgram& program, EntryId entry);

}  // namespace sluice::tools
