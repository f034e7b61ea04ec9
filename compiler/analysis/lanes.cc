#include "compiler/analysis/lanes.h"

namespace sluice {

Deal dealTasks(int32_t window, int32_t tiles, int32_t cores) {
  Deal deal;
  deal.seats.resize(static_cast<size_t>(cores));
  int32_t seat = 0;
  for (int32_t slot = 0; slot < window; ++slot)
    for (int32_t tile = 0; tile < tiles; ++tile) {
      deal.seats[static_cast<size_t>(seat)].push_back(
          {static_cast<uint32_t>(slot), static_cast<uint32_t>(tile)});
      seat = seat + 1 == cores ? 0 : seat + 1;
    }
  deal.rotation = seat;
  return deal;
}

}  // namespace sluice
