// Memory plan: the region of each runtime-owned buffer, and its place in the region's strides.
//
// Buffers share bytes of a region where their lifetimes allow (memory_lifetimes.h) and they have the same
// extent. Buffers of less than 64 bytes per row never share a region with wider ones: that would cost one
// cache line per row.
#pragma once

#include <string>
#include <vector>

#include "compiler/analysis/memory_lifetimes.h"
#include "runtime/program/program.h"

namespace sluice {

struct MemoryPlan {
  std::vector<Region> regions;
  std::vector<RegionId> of;      // by BufferId; none: the caller's memory
  std::vector<int64_t> offsets;  // by BufferId: bytes from the begin of the region's stride
};

// Deterministic: widest rows first, then as declared; each buffer takes the first region it fits. Where that
// takes more than must be live at once, other orders are tried, one buffer moved at a time, as long as it
// pays and for a bounded time. If regions that hold one buffer at a time are still too much, temporary
// buffers are also placed side by side: each at the lowest place that is free while it lives, in the region
// that this makes grow least. Regions are named after the first buffer in them.
MemoryPlan planMemory(const TaskProgram& program);

}  // namespace sluice
