// PhaseTime: how long one phase of a compilation took. Value type.
#pragma once

#include <string>

namespace sluice {

struct PhaseTime {
  std::string phase;  // a pass or a phase by its name, or what comes before, between and after them
  double seconds = 0;
};

}  // namespace sluice
