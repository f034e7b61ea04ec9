// What the families of a program compute, each in a few lines of double precision.
//
// A family is taken as a whole: no slots, tiles, lanes, events or kernels. One thread calls it.
#pragma once

#include <random>
#include <vector>

#include "runtime/program/program.h"
#include "tools/evaluate/routed_rows.h"
#include "tools/evaluate/values.h"

namespace sluice::tools {

// All buffers of one rank by BufferId; a buffer that is not there yet has no shape.
struct RankState {
  int64_t tokens = 0;
  std::vector<Values> buffers;
};

struct FamilyContext {
  const TaskProgram& program;
  const std::vector<RankRows>& routing;  // of the family's entry
  std::vector<RankState>& ranks;
  bool roundStored = false;          // round what a task stores, as its buffer does
  std::mt19937_64* noise = nullptr;  // instead: change it by random parts of what rounding may change
  int threads = 1;
};

// Computes what `family` writes, at all ranks; what it reads is there. Pairs (extent P) are held as all
// token * topK + k, with zeros where a pair is masked. A gradient that is added to and is not there is 0.
void evaluateFamily(const FamilyContext& context, const Family& family);

}  // namespace sluice::tools
