// What a simulated entry took: times by family and by rank. Plain records.
//
// Value types.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/exec/trace_span.h"
#include "runtime/program/program.h"

namespace sluice {

// The clock of a simulation. Whole picoseconds, so that sums are exact and equal on every machine.
using SimTime = int64_t;  // picoseconds from the beginning of the entry

inline constexpr double kSimTicks = 1e12;  // per second
// The longest entry that can be simulated, 1000 s: the time of all cores of a rank fits. Longer times are cut
// to it, and end the simulation.
inline constexpr SimTime kMaxSimTime = 1'000'000'000'000'000;

inline SimTime toSimTime(double seconds) {
  return static_cast<SimTime>(
      std::llround(std::clamp(seconds * kSimTicks, 0.0, static_cast<double>(kMaxSimTime))));
}

inline double toSeconds(SimTime time) { return static_cast<double>(time) / kSimTicks; }

inline int64_t toNanoseconds(SimTime time) { return time / 1000; }

// All tasks of a family, at all ranks.
struct SimFamily {
  int64_t tasks = 0;
  int64_t empty = 0;  // tasks without rows
  SimTime busy = 0;
  SimTime firstStart = 0;
  SimTime lastEnd = 0;
};

// Time in which workers of a rank waited for an event before a task of a family.
struct SimWait {
  EventId event;
  FamilyId family;
  int64_t waits = 0;
  SimTime time = 0;
};

struct SimRankTimes {
  SimTime end = 0;  // of its last task
  int64_t tasks = 0;
  int64_t rows = 0;               // R
  std::array<SimTime, 3> busy{};  // by CoreKind of the families, summed over workers
  SimTime products = 0;           // of that: in tasks that multiply
  SimTime arrival = 0;            // waits for rows that ranks send, summed over workers
  SimTime producer = 0;           // waits for tasks of this rank
  SimTime idle = 0;               // nothing was left for the worker, up to the end of the rank
  SimTime outstanding = 0;        // rows were leaving it, or were on their way from or to it
  SimTime exposed = 0;  // of that: no worker ran a task of a matrix or unified core but sends and returns
  int64_t sent = 0;     // bytes to other ranks
  int64_t messages = 0;
  std::vector<SimWait> waits;  // by event, then family
};

struct SimResult {
  EntryId entry;
  SimTime end = 0;  // the makespan: end of the last task of any rank
  int64_t tasks = 0;
  int64_t moments = 0;              // ends of tasks and steps of messages that were simulated
  int workers = 0;                  // per rank
  bool kindsApart = false;          // one worker per core, and matrix and vector cores are separate
  std::vector<SimFamily> families;  // by FamilyId; families of other entries have no tasks
  std::vector<SimRankTimes> ranks;
  std::vector<Trace> traces;  // by rank, in nanoseconds from the beginning of the entry; empty: not recorded
};

}  // namespace sluice
