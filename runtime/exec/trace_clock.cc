#include "runtime/exec/trace_clock.h"

#include <cmath>
#include <fstream>
#include <string>

namespace sluice {

TraceClock::TraceClock() {
#if defined(__x86_64__)
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string source;
  isCounter_ = std::getline(file, source) && source == "tsc";
#endif
}

int64_t toNanoseconds(int64_t ticks, const TraceClock::Anchor& from, const TraceClock::Anchor& to) {
  const int64_t length = to.ticks - from.ticks;
  const double rate =
      length > 0 ? static_cast<double>(to.nanoseconds - from.nanoseconds) / static_cast<double>(length) : 1;
  return from.nanoseconds + std::llround(static_cast<double>(ticks - from.ticks) * rate);
}

}  // namespace sluice
