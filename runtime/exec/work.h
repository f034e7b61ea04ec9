// WorkKind: which kernels a run calls, and Traffic: what it sends to other ranks. For measuring how far
// communication and computation overlap.
//
// Value types.
#pragma once

#include <cstdint>

namespace sluice {

// A task whose kernel is not called signals as if it had been, so that a run of part of the work waits, and
// ends, like one of all of it. What it leaves in outputs and saved tensors are not the layer's results.
enum class WorkKind : uint8_t {
  kAll,
  kCommunication,  // of sends and returns: rows are copied, nothing is computed
  kCompute,        // of all other tasks: nothing is copied to other ranks
};

// The data that one step of a rank sends to other ranks.
struct Traffic {
  int64_t pieces = 0;   // rows that one task sends
  int64_t bytes = 0;    // of all pieces
  int64_t signals = 0;  // of events, and of the counts that reports are made from
};

}  // namespace sluice
