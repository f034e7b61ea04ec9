#include "runtime/sim/links.h"

#include <algorithm>

namespace sluice {

Links::Links(const LinkRates& rates, int ranks)
    : bandwidth_(rates.bandwidth),
      latency_(toSimTime(rates.latency)),
      outFree_(static_cast<size_t>(ranks)),
      inFree_(static_cast<size_t>(ranks)) {}

SimTime Links::send(int source, double bytes, SimTime now) {
  SimTime& free = outFree_[static_cast<size_t>(source)];
  const SimTime begin = std::max(free, now);
  free = std::min(begin + transferTime(bytes), kMaxSimTime);
  return begin + latency_;
}

SimTime Links::receive(int destination, double bytes, SimTime now) {
  SimTime& free = inFree_[static_cast<size_t>(destination)];
  free = std::min(std::max(free, now) + transferTime(bytes), kMaxSimTime);
  return free;
}

}  // namespace sluice
