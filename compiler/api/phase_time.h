// PhaseTime: how long one phase of a compilation took. Value type.
#pragma once

#include <string>

namespace sluice {

struct PhaseTime {
  std::string phase;  // name of a pass or phase, or of the work before, between and after them
  double seconds = 0;
};

}  // namespace sluice
