// evaluate: what any program is to compute, in double precision over all ranks.
//
// Families are taken whole, in the order of their data: no slots, tasks, events or kernels, and nothing is
// rounded unless asked for. So it can check every run of a program, and finite differences can check that a
// derived entry computes gradients. Every buffer of every rank is kept as doubles: for sizes of tests.
//
// Free function on values; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/verify.h"
#include "tools/evaluate/values.h"

namespace sluice::tools {

struct EvaluateOptions {
  bool roundStored = false;  // round where the program stores bf16 or fp32
  uint64_t noiseSeed = 0;    // not 0: what is stored is off by random parts of what rounding may change
  int threads = 1;           // of the matrix products
};

// Runs `entries` in this order and returns the outputs they write, one map per rank. `inputs` holds the
// inputs of these entries by name, one map per rank, and what gradients that are added to hold before;
// without it they hold 0. Other tensors are ignored.
//
// Errors: a missing input, a wrong shape, other numbers of tokens in the tensors of a rank (rank, tensor,
// found, expected); an expert id out of range or repeated; an entry that reads what no entry before it wrote.
Expected<std::vector<ValueMap>> evaluate(const VerifiedProgram& program, std::span<const EntryId> entries,
                                         std::vector<ValueMap> inputs, const EvaluateOptions& options);

}  // namespace sluice::tools
