// The packed weights of a rank, as a device counts them and callers see them.
#pragma once

#include <cstdint>

namespace sluice {

struct PackedWeights {
  int64_t bytes = 0;        // memory taken
  int64_t panels = 0;       // pieces of weights that are packed with their present content
  int64_t withoutRoom = 0;  // pieces that are not packed because of ContextOptions::packedBytes
};

}  // namespace sluice
