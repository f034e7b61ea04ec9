// WorkKind: which kernels a run calls. Traffic: what it sends to other ranks. Used to measure how far
// communication and computation overlap.
//
// Value types.
#pragma once

#include <cstdint>

namespace sluice {

// A task whose kernel is not called signals as if it had run, so a run of part of the work waits and ends
// like a full run. Its outputs and saved tensors are then not the layer's results.
enum class WorkKind : uint8_t {
  kAll,
  kCommunication,  // only of sends and returns: rows are copied, nothing is computed
  kCompute,        // only of all other tasks: nothing is copied to other ranks
};

// The data that one step of a rank sends to other ranks.
struct Traffic {
  int64_t pieces = 0;   // a piece is the rows that one task sends
  int64_t bytes = 0;    // of all pieces
  int64_t signals = 0;  // to events, and to the counts for reports
};

}  // namespace sluice
