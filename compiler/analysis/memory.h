// plan-memory: the region of each runtime-owned buffer, and its place in the region's strides.
//
// Buffers share bytes of a region if their lifetimes allow it (memory_lifetimes.h) and they have the same
// extent. Buffers of less than 64 bytes per row never share a region with wider ones: that would cost one
// cache line per row.
#pragma once

#include "compiler/analysis/finding.h"

namespace sluice {

// `program` has no regions. Afterwards every temporary buffer, every saved buffer and every output of rows
// has a region, and a place in its stride.
//
// Deterministic: widest rows first, then in order of declaration; each buffer takes the first region it fits.
// If that takes more than must be live at once, other orders are tried, moving one buffer at a time, as long
// as it helps and for a bounded time. If regions that hold one buffer at a time are still too large,
// temporary buffers are also placed side by side: each in the region that grows least, at the lowest place
// that is free while it lives. A region has the name of its first buffer. Errors: a program that already has
// regions.
Expected<TaskProgram> planMemory(TaskProgram program);

}  // namespace sluice
