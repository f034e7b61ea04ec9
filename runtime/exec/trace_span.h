// The spans of a trace: periods in which a worker did one thing. Plain records, for embedders, too.
//
// Value types. Times are nanoseconds of CLOCK_MONOTONIC, the same clock for all ranks of a machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/id.h"

namespace sluice {

enum class SpanKind : uint8_t {
  kTask = 0,      // a kernel and its signals
  kWait = 1,      // no head was ready; ends when `family`'s task begins, whose `event` came last
  kStart = 2,     // from the beginning of the tasks' part of a run to the worker's first poll
  kEnd = 3,       // this worker has nothing left to do, but another one has
  kRun = 4,       // of the rank: one run of an entry, which includes the next two
  kBind = 5,      // counts exchanged, tables and thresholds made
  kExchange = 6,  // the part of bind that waits for the counts of other ranks
  kStuck = 7,     // a wait that the failure of the run ended; of the rank: a bind that did
};

inline bool isWait(SpanKind kind) { return kind == SpanKind::kWait || kind == SpanKind::kStuck; }

struct TraceSpan {
  int64_t begin = 0;
  int64_t end = 0;
  SpanKind kind = SpanKind::kTask;
  int32_t worker = -1;  // -1: the rank itself
  EntryId entry;
  LaneId lane;       // this and all following fields: only for kTask, kWait and a worker's kStuck
  int32_t core = 0;  // among the cores of the lane's kind
  FamilyId family;
  int64_t slot = 0;  // of the rank's own spans: the number of the step in its workspace, equal at all ranks
  int32_t tile = 0;
  int32_t rows = 0;   // kTask: in the slot or piece, or tokens in the slot
  EventId event;      // kWait and kStuck: the event that was missing
  int64_t index = 0;  // in its event array; kRun: of the run's routing in Trace::routings, -1: not recorded
};

// Which rows the tokens of a rank became in a run, [T,K]: the place of each (token, k) pair among the experts
// of all ranks, -1 if it is masked. From the routings of all ranks the tables of the run can be made again.
struct TracedRouting {
  int32_t tokens = 0;
  std::vector<int32_t> places;
  friend bool operator==(const TracedRouting&, const TracedRouting&) = default;
};

struct CoreOfLane {
  LaneId lane;
  int32_t core = 0;  // among the cores of the lane's kind
  friend bool operator==(const CoreOfLane&, const CoreOfLane&) = default;
};

// A task that its core had to run next when the run failed, and who owed what it waited for.
struct NextTask {
  CoreOfLane at;
  FamilyId family;
  int64_t slot = 0;
  int32_t tile = 0;
  EventId event;  // none: the task was ready
  int64_t index = 0;
  uint64_t have = 0, need = 0;
  std::vector<int32_t> ranks;     // ranks that owed rows to the event, this one included
  std::vector<CoreOfLane> cores;  // cores of this rank whose tasks owed a signal
};

// The run whose failure ended the recording: waits beyond the limit, ranks that were lost or failed.
struct FailedRun {
  EntryId entry;
  int64_t step = 0;            // its number in its workspace
  std::string message;         // empty: no run failed
  std::vector<NextTask> next;  // empty: it failed before its tasks
};

// The trace of one rank. Sorted by worker, the rank's own spans first, then by time.
struct Trace {
  std::vector<TraceSpan> spans;
  int64_t dropped = 0;                  // number of older spans that did not fit
  std::vector<TracedRouting> routings;  // neighbours differ
  FailedRun failed;

  bool hasFailed() const { return !failed.message.empty(); }
  // A rank that was not recorded has no trace.
  bool isThere() const { return !spans.empty() || hasFailed(); }
};

}  // namespace sluice
