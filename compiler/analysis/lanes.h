// Core deal and lane order: one lane a family, its tasks dealt to the cores' seats, and which lane goes
// first.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/analysis/draft.h"

namespace sluice {

struct SlotTile {
  uint32_t slot = 0;
  uint32_t tile = 0;
  friend bool operator==(const SlotTile&, const SlotTile&) = default;
};

struct Deal {
  std::vector<std::vector<SlotTile>> seats;  // one list a core, by slot, then tile
  int32_t rotation = 0;
};

// Task (slot, tile) of a window goes to seat (slot * tiles + tile) mod cores; the next window starts at the
// core after the last one dealt to, so that the load is even to one task over any number of windows.
Deal dealTasks(int32_t window, int32_t tiles, int32_t cores);

// The lane priority of each family, from 0 in each entry: communication first, then the chain from its end
// to its beginning (what is nearly done frees memory and feeds the network), weight gradients last, those
// whose inputs come first before the others.
std::vector<int32_t> rankFamilies(const Draft& draft);

}  // namespace sluice
