// What the link between two ranks of this machine can do: how quickly rows are put beside how quickly they
// are copied, and how long a signal takes.
//
// Value types and free functions.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "runtime/base/expected.h"
#include "runtime/comm/transport.h"

namespace sluice::tools {

// Bytes per second, the best of many batches, in turn; all to memory that was touched before and is mapped
// alike: that of the other rank, and that of this one. Behind the stores of one copy the address of the next
// is found late; memcpy is told with that, as a put has it, and without.
struct PutRate {
  size_t bytes = 0;  // of one put
  double put = 0;
  double copy = 0;   // by memcpy to an address that the transport is asked for each time
  double known = 0;  // by memcpy to an address that is known before
};

// Lies in a block of bytes as it is. Seconds are half of a round trip: the median batch, and the best.
struct LinkFigures {
  std::array<PutRate, 8> rates{};
  double spinning = 0, leastSpinning = 0;  // the receiver looks again and again
  double parked = 0, leastParked = 0;      // it sleeps until the doorbell rings
};

// Ranks 0 and 1, each on a thread that nothing else runs on, if there is a core for each; collective. The
// figures are those of rank 0. Errors: another number of ranks; the end of the other one.
Expected<LinkFigures> probeLink(Transport& transport);

// The two ranks as threads of this process, or as processes forked from it.
Expected<LinkFigures> probeThreads();
Expected<LinkFigures> probeProcesses();

std::string textOf(const LinkFigures& figures);

}  // namespace sluice::tools
