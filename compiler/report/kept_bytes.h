// How much a graph keeps for later entries: bytes per row and per token. The routing is not counted, since
// the runtime always keeps it. Free functions.
#pragma once

#include <cstdint>

#include "compiler/dialect/moe.h"

namespace sluice {

struct KeptBytes {
  int64_t row = 0;
  int64_t token = 0;
  friend bool operator==(const KeptBytes&, const KeptBytes&) = default;
};

// Summed over all entries of the graph. `inPlace`: rows that a dispatch would make are kept as its tokens
// (analysis/in_place.h).
KeptBytes keptBytes(moe::GraphOp graph, bool inPlace = false);

// What the graph would keep if its derived backward had been derived with minimal, or with all if it keeps
// little: minimal or regather.
KeptBytes keptBytesOtherwise(moe::GraphOp graph, bool keepsLittle, bool inPlace = false);

}  // namespace sluice
