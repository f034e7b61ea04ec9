// What an entry keeps for later ones, by its graph: bytes for each row and for each token. Not the routing,
// which is kept by the runtime in any case.
#pragma once

#include <cstdint>

#include "compiler/graph/graph.h"

namespace sluice {

struct KeptBytes {
  int64_t row = 0;
  int64_t token = 0;
  friend bool operator==(const KeptBytes&, const KeptBytes&) = default;
};

// Over all entries of the graph.
KeptBytes keptBytes(const Graph& graph);

}  // namespace sluice
