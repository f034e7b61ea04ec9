// Live slots, counters and seats of a program under a routing, for the oracles of verify(). Plain functions
// that say what docs/SCHEDULE.md says, without any of the verifier's reasoning.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/program/program.h"
#include "tests/runtime/program/verify_oracle_routing.h"

namespace sluice {

// Live slots of a space at a rank.
int oracleSlots(const TaskProgram& program, SpaceId space, const OracleRank& rank);

// Counters of an event array of this space at a rank.
size_t oracleCounters(const TaskProgram& program, EventSpace space, const OracleRank& rank);

// None where the rule means nothing in the event's space.
std::optional<int64_t> oracleThreshold(const TaskProgram& program, const EventArray& event, int index,
                                       const OracleRank& rank);

// The counter of its own rank that a task waits for, or -1.
int oracleWaitIndex(SpaceKind kind, int slot, const EventArray& event, const OracleRank& rank);

struct OracleSignal {
  int rank, index;
  int64_t count;
};

// What a task of `rank` adds when it is done; none where the event has no counter for it.
std::optional<OracleSignal> oracleSignal(SpaceKind kind, int slot, const EventArray& event,
                                         const OracleRank& here, int rank);

struct OracleTask {
  FamilyId family;
  int slot, tile;
};

// What a core runs of a lane at a rank, over all windows.
std::vector<OracleTask> oracleSeat(const TaskProgram& program, const Lane& lane, int core,
                                   const OracleRank& rank);

}  // namespace sluice
