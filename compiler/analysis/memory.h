// plan-memory: the region of each runtime-owned buffer, and its place in the region's strides.
//
// Buffers share bytes of a region where their lifetimes allow (memory_lifetimes.h) and they have the same
// extent. Buffers of less than 64 bytes per row never share a region with wider ones: that would cost one
// cache line per row.
#pragma once

#include "compiler/analysis/finding.h"

namespace sluice {

// `program` has no regions; after this every temporary and saved buffer and every output of rows has one, and
// its place in the region's strides.
//
// Deterministic: widest rows first, then as declared; each buffer takes the first region it fits. Where that
// takes more than must be live at once, other orders are tried, one buffer moved at a time, as long as it
// pays and for a bounded time. If regions that hold one buffer at a time are still too much, temporary
// buffers are also placed side by side: each at the lowest place that is free while it lives, in the region
// that this makes grow least. Regions are named after the first buffer in them. Errors: a program that has
// regions.
Expected<TaskProgram> planMemory(TaskProgram program);

}  // namespace sluice
