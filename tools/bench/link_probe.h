// What the link between two ranks of this machine can do: the speed of puts compared with the speed of
// copies, and the time of a signal.
//
// Value types and free functions.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "runtime/base/expected.h"
#include "runtime/comm/transport.h"

namespace sluice::tools {

// Bytes per second, the best of many batches, which take turns. All targets were touched before and are
// mapped the same way: the memory of the other rank, and this rank's. memcpy is measured twice, because the
// address of the next copy is known late after the stores of one copy: with the address looked up, as in a
// put, and with a known address.
struct PutRate {
  size_t bytes = 0;  // of one put
  double put = 0;
  double copy = 0;   // by memcpy to an address that the transport looks up each time
  double known = 0;  // by memcpy to an address that is already known
};

// Copied as bytes. Seconds are half of a round trip: of the median batch, and of the best.
struct LinkFigures {
  std::array<PutRate, 8> rates{};
  double spinning = 0, leastSpinning = 0;  // the receiver polls
  double parked = 0, leastParked = 0;      // the receiver sleeps until the doorbell rings
};

// Ranks 0 and 1, each on its own thread and core, if there are two; collective. Rank 0 measures the figures.
// Errors: another number of ranks; the other rank has ended.
Expected<LinkFigures> probeLink(Transport& transport);

// The two ranks as threads of this process, or as processes forked from it.
Expected<LinkFigures> probeThreads();
Expected<LinkFigures> probeProcesses();

std::string formatText(const LinkFigures& figures);

}  // namespace sluice::tools
