// FaultPlan: what goes wrong on the way between ranks, as one line of text that brings it about again.
//
//   seed=17 delay=3% reorder=5% duplicate=2% hide die@n=97 rank=2
//
// A value type. Which operations come late, in another order or twice follows from the seed, the rank and the
// number of the operation; operations are numbered by rank, and which has which number may differ from run to
// run where a rank has several workers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/expected.h"

namespace sluice {

struct FaultPlan {
  uint64_t seed = 0;

  // Legal by the contract of Transport, at every rank: percent of its operations.
  int delay = 0;      // come late, by some time
  int reorder = 0;    // come after some later ones
  int duplicate = 0;  // of puts: come twice
  bool hide = false;  // memory of other ranks is out of reach of stores: every piece goes through put

  // Faults at one rank: at which of its operations, from 1; 0: none.
  int rank = 0;
  int64_t drop = 0;     // one signal or post is lost; a put takes all that follows to its receiver with it
  int64_t cut = 0;      // from here on nothing comes to the receiver of this operation
  int64_t die = 0;      // the rank dies before it; half of a put may be done
  int64_t corrupt = 0;  // of its blocks (AllGather), counted by themselves: one comes with a wrong byte

  bool overtake = false;  // not legal: rows come after the signals that cover them

  bool isNone() const { return isHarmless() && !overtake && !hide && delay + reorder + duplicate == 0; }
  // Nothing but what a transport may do: every step ends well.
  bool isHarmless() const { return drop == 0 && cut == 0 && die == 0 && corrupt == 0 && !overtake; }

  friend bool operator==(const FaultPlan&, const FaultPlan&) = default;
};

std::string toText(const FaultPlan& plan);

// Errors: an unknown word, a number that is none or out of range.
Expected<FaultPlan> parseFaultPlan(std::string_view text);

// A plan for ranks that do about `operations` operations each; one in four is harmless.
FaultPlan randomFaultPlan(uint64_t seed, int ranks, int64_t operations);

// A number for each (a, b), in any order the same.
uint64_t mixBits(uint64_t a, uint64_t b);

}  // namespace sluice
