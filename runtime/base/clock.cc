#include "runtime/base/clock.h"

#include <fmt/format.h>
#include <time.h>

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
