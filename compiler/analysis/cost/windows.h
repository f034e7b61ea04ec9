// Windows: how many slots of each space one run of a lane's table covers. Value type.
#pragma once

#include <cstdint>

namespace sluice {

struct Windows {
  int32_t tokens = 32;
  int32_t rows = 16;
  int32_t sends = 64;
  int32_t returns = 64;
  int32_t experts = 1;
  friend bool operator==(const Windows&, const Windows&) = default;
};

}  // namespace sluice
