// The clock of a simulation. Whole picoseconds, so that sums are exact and equal on every machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace sluice {

using SimTime = int64_t;  // picoseconds from the beginning of the entry

inline constexpr double kSimTicks = 1e12;  // per second
// The longest entry that can be simulated, 1000 s: the time of all cores of a rank fits. Longer times are cut
// to it, and end the simulation.
inline constexpr SimTime kMaxSimTime = 1'000'000'000'000'000;

inline SimTime toSimTime(double seconds) {
  return static_cast<SimTime>(
      std::llround(std::clamp(seconds * kSimTicks, 0.0, static_cast<double>(kMaxSimTime))));
}

inline double toSeconds(SimTime time) { return static_cast<double>(time) / kSimTicks; }

inline int64_t toNanoseconds(SimTime time) { return time / 1000; }

}  // namespace sluice
