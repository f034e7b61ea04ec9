// Memory plan: which region each runtime-owned buffer lies in.
//
// Two buffers may share a region if neither is saved nor an output and
//   in different entries     always: a rank starts an entry when the one before has ended;
//   in one entry             if every writer of one of them covers every reader and writer of the other at
//                            slot scope, so that element i is dead before its place is written again.
// Buffers of less than 64 bytes a row never lie in a region of wider ones: it would cost a cache line a row.
#pragma once

#include <string>
#include <vector>

#include "compiler/analysis/draft.h"

namespace sluice {

struct MemoryPlan {
  std::vector<Region> regions;
  std::vector<RegionId> of;  // by BufferId; none: the caller's memory
};

// Bytes of one element of the outermost dimension where that is a run-time extent, else of the whole buffer.
int64_t bytesPerUnit(const Buffer& buffer);

// Greedy and deterministic: widest rows first, then as declared; each buffer takes the first region it fits.
// Regions are named after the first buffer in them.
MemoryPlan planMemory(const Draft& draft);

}  // namespace sluice
