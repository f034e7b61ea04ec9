// A target with small slots and tiles, so that small layers have several of both.
#pragma once

#include "compiler/target/target.h"

namespace sluice {

inline Target smallTarget() {
  Target target;
  target.name = "cpu";
  target.cores = 3;
  target.slotRows = 16;
  target.tokenSlot = 8;
  target.tiles = {16, 16, 16};
  target.windows = {4, 4, 4, 4, 1};
  return target;
}

}  // namespace sluice
