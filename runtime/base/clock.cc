#include "runtime/base/clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

namespace sluice {

int64_t monotonicNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::string nameOfClock() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  std::getline(file, name);
  return name;
}

double computeMedian(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Status checkTimeLimit(double seconds) {
  if (seconds > 0) return {};
  return Error{fmt::format("a time limit of {} s, expected more than 0", seconds)};
}

int64_t limitNanoseconds(double seconds) {
  constexpr int64_t kMost = int64_t{1} << 62;
  if (!checkTimeLimit(seconds)) return 0;
  return seconds < kMost * 1e-9 ? static_cast<int64_t>(seconds * 1e9) : kMost;
}

}  // namespace sluice
