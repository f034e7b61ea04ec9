// What the families of a program compute, each in a few lines of double precision.
//
// A family is computed as a whole: without slots, tiles, lanes, events or kernels; weights expert by expert,
// which may stay in the type that they are stored in. One thread calls it.
#pragma once

#include <random>
#include <vector>

#include "runtime/program/program.h"
#include "tools/evaluate/routed_rows.h"
#include "tools/evaluate/values.h"

namespace sluice::tools {

// All buffers of one rank by BufferId; a buffer that does not exist yet has no shape.
struct RankState {
  int64_t tokens = 0;
  std::vector<Values> buffers;
};

struct FamilyContext {
  const TaskProgram& program;
  const std::vector<RankRows>& routing;  // of the family's entry
  std::vector<RankState>& ranks;
  bool roundStored = false;          // round what a task stores, to the type of its buffer
  std::mt19937_64* noise = nullptr;  // if set, add random parts of the rounding error instead
  int threads = 1;
  bool exactFactors = false;  // rows that become codes, and factors that products round, stay as they are
};

// Computes what `family` writes at a rank; what it reads must exist at all ranks. Rows that return (extent P)
// are stored by the shard that they come from, then for all token * topK + k, with zeros for masked pairs. A
// gradient that the family adds to starts at 0 if it does not exist.
void evaluateFamily(const FamilyContext& context, const Family& family, size_t rank);

}  // namespace sluice::tools
