// Links: when a message between two ranks arrives.
//
// Each rank has a port out and a port in, both of the link's bandwidth. A port passes one message at a time:
// the port out in the order in which messages are given to it, the port in in the order in which their first
// bytes reach it, which is the latency after they left. A message streams through both ports, so one that
// finds them free arrives after latency + bytes / bandwidth. Nothing else limits the network.
//
// Used by one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/cost/rates.h"
#include "runtime/sim/sim_result.h"

namespace sluice {

class Links {
 public:
  Links(const LinkRates& rates, int ranks);

  // Takes the port out of `source` from `now` on; returns when the first byte reaches the other rank.
  SimTime send(int source, double bytes, SimTime now);
  // Takes the port in of `destination`, where the first byte is now; returns when the last one arrives. Calls
  // must be in the order of `now`.
  SimTime receive(int destination, double bytes, SimTime now);

 private:
  SimTime transferTime(double bytes) const { return toSimTime(bytes / bandwidth_); }

  double bandwidth_;
  SimTime latency_;
  std::vector<SimTime> outFree_;  // by rank
  std::vector<SimTime> inFree_;
};

inline Links::Links(const LinkRates& rates, int ranks)
    : bandwidth_(rates.bandwidth),
      latency_(toSimTime(rates.latency)),
      outFree_(static_cast<size_t>(ranks)),
      inFree_(static_cast<size_t>(ranks)) {}

inline SimTime Links::send(int source, double bytes, SimTime now) {
  SimTime& free = outFree_[static_cast<size_t>(source)];
  const SimTime begin = std::max(free, now);
  free = std::min(begin + transferTime(bytes), kMaxSimTime);
  return begin + latency_;
}

inline SimTime Links::receive(int destination, double bytes, SimTime now) {
  SimTime& free = inFree_[static_cast<size_t>(destination)];
  free = std::min(std::max(free, now) + transferTime(bytes), kMaxSimTime);
  return free;
}

}  // namespace sluice
