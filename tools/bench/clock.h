// The clocks of measurements, and their samples.
//
// Value types. On a machine that does other work too, wall time says little. The processor time of this
// process, divided by its threads, is then close to the time on an idle machine, as long as its threads do
// not wait for each other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/base/clock.h"

namespace sluice::tools {

enum class ClockKind : uint8_t { kWall, kCpu };

struct Duration {
  double wall = 0;  // seconds
  double cpu = 0;   // of all threads of this process

  double seconds(ClockKind clock, int threads) const {
    return clock == ClockKind::kWall ? wall : cpu / threads;
  }
};

class Timer {
 public:
  Duration elapsed() const {
    const Duration end = now();
    return {end.wall - begin_.wall, end.cpu - begin_.cpu};
  }

 private:
  static Duration now() { return {secondsNow(), secondsNow(CLOCK_PROCESS_CPUTIME_ID)}; }

  Duration begin_ = now();
};

// All repetitions of one measurement, in order.
struct Samples {
  std::vector<Duration> all;
  int threads = 1;  // that the measurement used

  std::vector<double> sorted(ClockKind clock) const {
    std::vector<double> seconds;
    for (const Duration& duration : all) seconds.push_back(duration.seconds(clock, threads));
    std::sort(seconds.begin(), seconds.end());
    return seconds;
  }
  // Requires at least one repetition; the upper one of two in the middle.
  double median(ClockKind clock) const { return sorted(clock)[all.size() / 2]; }
  double least(ClockKind clock) const { return sorted(clock).front(); }
  double most(ClockKind clock) const { return sorted(clock).back(); }
};

}  // namespace sluice::tools
