// The tensors that entries of a program read and write: checked against files, or made.
//
// Free functions on values; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"
#include "tools/io/tensor.h"
#include "tools/moe/inputs.h"

namespace sluice::tools {

// The entries of a comma-separated list, or all entries if it is empty. Error: an unknown entry (lists the
// known ones).
Expected<std::vector<EntryId>> findEntries(const TaskProgram& program, std::string_view names);

// Inputs and outputs of the entries, each once, in order of the program's buffers.
struct EntryTensors {
  std::vector<BufferId> inputs;
  std::vector<BufferId> outputs;
};
EntryTensors listEntryTensors(const TaskProgram& program, const std::vector<EntryId>& entries);

// "BF16 [T, 2048]", with the experts of the rank.
std::string describeBuffer(const TaskProgram& program, int rank, const Buffer& buffer);

// Returns T of rank `rank`. `tensors` are the tensors of its file: inputs of the program, and starts of
// gradients that a run adds to. `tokens` is T of every rank, if the caller knows it, or empty. If neither it
// nor a tensor in the file shows T, and the program has no expert ids, T follows from R as in tokensOfRows().
// Errors: a missing input; a tensor that is neither; a wrong type or shape; a T above max_tokens; a T, or
// without expert ids an R, that differs from the other tensors or from `tokens` (tensor, found, expected).
Expected<int64_t> checkInputs(const TaskProgram& program, int rank, const std::vector<BufferId>& inputs,
                              const TensorMap& tensors, const std::vector<int64_t>& tokens = {});

// Checks that each tensor is an output of the program, with the type and shape that it has at this rank.
// Errors: tensor, found, expected.
Status checkOutputs(const TaskProgram& program, int rank, int64_t tokens, const TensorMap& tensors);

// Zero-filled tensors for the outputs that the caller binds at a rank: all except those with extent rows. An
// output that a run adds to starts with the tensor of its name in the rank's file, if there is one:
// copyStarts() copies it.
TensorMap makeOutputs(const TaskProgram& program, int rank, const std::vector<BufferId>& outputs,
                      int64_t tokens);

void copyStarts(const TaskProgram& program, const TensorMap& file, TensorMap& outputs);

// The spec of `--tokens`, `--routing` and `--seed`, the first two of which are already checked; without
// tokens every rank has the program's max_tokens.
InputsSpec inputsSpec(const TaskProgram& program, const std::string& tokens, const std::string& routing,
                      uint64_t seed);

// Floating-point operations of the matrix products of an entry at a rank with `rows` rows and `tokens`
// tokens: 2 per multiply-add.
double countFlops(const TaskProgram& program, EntryId entry, int64_t rows, int64_t tokens);

}  // namespace sluice::tools
