// evaluate: computes the results of any program in double precision over all ranks.
//
// Families are computed as a whole, in the order of their data: without slots, tasks, events or kernels, and
// nothing is rounded unless requested. So it can check every run of a program, and finite differences can
// check that a derived entry computes gradients. A buffer is kept as doubles, at every rank, from the family
// that writes it to the last one that reads it; weights that are given as views (viewTensors()) are not.
//
// Free function on values; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/verify.h"
#include "tools/evaluate/values.h"

namespace sluice::tools {

// Gets an output of a rank when its numbers are complete. Ranks come in order.
using OutputHook = std::function<void(size_t rank, BufferId output, const Values& values)>;

// Called before each family with its name: it is number `step` of `steps`, from 1.
using EvaluateHook = std::function<void(int64_t step, int64_t steps, std::string_view family)>;

struct EvaluateOptions {
  bool roundStored = false;  // round where the program stores bf16 or fp32
  uint64_t noiseSeed = 0;    // not 0: adds a random part of the rounding error to everything that is stored
  int threads = 1;           // for the matrix products
  // Rows that become codes, and factors that products round, stay as they are: what the program computes
  // without that.
  bool exactFactors = false;
  // By rank; for entries whose tensors of tokens are all results, so that no input shows their number.
  std::vector<int64_t> tokens = {};
  EvaluateHook before = {};
  OutputHook output = {};  // if set, takes all outputs: evaluate() returns none, and frees each at once
};

// Runs `entries` in this order and returns the outputs that they write, one map per rank. `inputs` has one
// map per rank: the inputs of these entries by name, and the old content of gradients that entries add to, or
// 0 if it is missing. Other tensors are ignored.
//
// Errors: a missing input, a wrong shape, different numbers of tokens in the tensors of a rank (rank, tensor,
// found, expected); an expert id out of range or repeated; an entry that reads what no earlier entry wrote.
Expected<std::vector<ValueMap>> evaluate(const VerifiedProgram& program, std::span<const EntryId> entries,
                                         std::vector<ValueMap> inputs, const EvaluateOptions& options);

}  // namespace sluice::tools
