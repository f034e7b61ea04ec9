// FaultPlan: faults on the way between ranks, as one line of text that reproduces them.
//
//   seed=17 delay=3% reorder=5% duplicate=2% hide die@n=97 rank=2
//
// A value type. The seed, the rank and the number of an operation determine which operations arrive late, in
// another order or twice. Operations are numbered per rank; if a rank has several workers, their order may
// differ between runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/expected.h"

namespace sluice {

struct FaultPlan {
  uint64_t seed = 0;

  // Allowed by the contract of Transport, at every rank: percent of its operations.
  int delay = 0;      // arrive late, by some time
  int reorder = 0;    // arrive after some later ones
  int duplicate = 0;  // of puts: arrive twice
  bool hide = false;  // no stores to memory of other ranks: every piece goes through put

  // Faults at one rank: at which of its operations, from 1; 0: none.
  int rank = 0;
  int64_t drop = 0;     // one signal or post is lost; a lost put loses everything after it to that receiver
  int64_t cut = 0;      // from here on nothing reaches the receiver of this operation
  int64_t die = 0;      // the rank dies before it; half of a put may be done
  int64_t corrupt = 0;  // counts only blocks (AllGather): this one arrives with a wrong byte

  bool overtake = false;  // not allowed: rows arrive after the signals that cover them

  bool isNone() const { return isHarmless() && !overtake && !hide && delay + reorder + duplicate == 0; }
  // Whether the plan contains only what a transport may do, so that every step succeeds.
  bool isHarmless() const { return drop == 0 && cut == 0 && die == 0 && corrupt == 0 && !overtake; }

  friend bool operator==(const FaultPlan&, const FaultPlan&) = default;
};

std::string toText(const FaultPlan& plan);

// Errors: an unknown word; a value that is not a number or out of range.
Expected<FaultPlan> parseFaultPlan(std::string_view text);

// A plan for ranks that do about `operations` operations each; one in four is harmless.
FaultPlan randomFaultPlan(uint64_t seed, int ranks, int64_t operations);

// A number for each (a, b), independent of the order of calls.
uint64_t mixBits(uint64_t a, uint64_t b);

}  // namespace sluice
