// Core deal: one lane per family, its tasks dealt to the cores' seats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

struct SlotTile {
  uint32_t slot = 0;
  uint32_t tile = 0;
  friend bool operator==(const SlotTile&, const SlotTile&) = default;
};

struct Deal {
  std::vector<std::vector<SlotTile>> seats;  // one list per core, by slot, then tile
  int32_t rotation = 0;
};

// Task (slot, tile) of a window goes to seat (slot * tiles + tile) mod cores; the next window starts at the
// core after the last one dealt to, so that the load is even to one task over any number of windows.
Deal dealTasks(int32_t window, int32_t tiles, int32_t cores);

}  // namespace sluice
