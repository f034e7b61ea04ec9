// What a graph keeps for later entries: bytes per row and per token. The routing is not counted, since the
// runtime keeps it in any case. Free functions.
#pragma once

#include <cstdint>

#include "compiler/dialect/moe.h"

namespace sluice {

struct KeptBytes {
  int64_t row = 0;
  int64_t token = 0;
  friend bool operator==(const KeptBytes&, const KeptBytes&) = default;
};

// Over all entries of the graph.
KeptBytes keptBytes(moe::GraphOp graph);

// What the graph would keep if its derived backward had been told to keep the other of all and minimal; it
// was derived to keep `minimal` or all.
KeptBytes keptBytesOtherwise(moe::GraphOp graph, bool minimal);

}  // namespace sluice
