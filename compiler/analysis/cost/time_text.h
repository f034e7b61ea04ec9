// Seconds in the form in which decisions print them. Free function.
#pragma once

#include <fmt/format.h>

#include <string>

namespace sluice {

inline std::string timeText(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} us", seconds * 1e6) : fmt::format("{:.3f} ms", seconds * 1e3);
}

}  // namespace sluice
