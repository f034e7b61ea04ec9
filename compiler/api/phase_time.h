// PhaseTime: how long one phase of a compilation took. Value type.
#pragma once

#include <string>

namespace sluice {

struct PhaseTime {
  std::string phase;  // a pass by its name, or what comes before and after the passes
  double seconds = 0;
};

}  // namespace sluice
