// Seconds, for measurements. Free functions; any thread.
#pragma once

#include <algorithm>
#include <ctime>
#include <vector>

namespace sluice {

// Seconds of a clock of POSIX: since an arbitrary time, or of processor time of the process or of this
// thread, which does not count the work of others on its core.
inline double secondsNow(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The median, of two in the middle the upper one; 0 of none.
inline double computeMedian(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace sluice
