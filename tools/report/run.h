// The source of a report, and what a run in it tells about itself: the spans of all ranks in order, who ended
// each wait, the critical path, and how communication and computation overlapped.
//
// Value types and free functions of values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/api/program.h"
#include "runtime/base/expected.h"
#include "runtime/exec/trace_span.h"
#include "runtime/trace/task_work.h"
#include "tools/trace/steps.h"

namespace sluice::tools {

// A program, and what its ranks recorded if it ran.
struct ReportSource {
  std::string file;
  Program program;
  int firstRank = 0;
  std::vector<Trace> ranks;  // empty: a program without a run

  bool hasRun() const { return !ranks.empty(); }
  // "rank 3" of the rank-th trace.
  std::string rankName(size_t rank) const {
    return "rank " + std::to_string(firstRank + static_cast<int>(rank));
  }
};

inline bool isTrace(const std::string& path) { return path.ends_with(".json"); }

// Reads a program file, or a trace (isTrace(path)). `choices` picks one of several programs in a
// trace: each is a number from 0 or a program file, and the first counts that is there. Errors: from
// Program::load() and readTrace(); several programs and no choice (they are listed), or none of the choices.
Expected<ReportSource> readSource(const std::string& path, const std::vector<std::string>& choices);

// A row of the timeline: a worker of a rank, or the rank's own steps (worker -1).
struct RunTrack {
  size_t rank = 0;  // in ReportSource::ranks
  int32_t worker = -1;
  WorkerTime time;  // of a worker
};

struct RunLane {
  size_t rank = 0;
  LaneId lane;
  int32_t core = 0;
};

inline constexpr size_t kNoLane = SIZE_MAX;
inline constexpr int64_t kNoCause = -1;

struct RunSpan {
  const TraceSpan* span = nullptr;
  size_t track = 0;
  size_t lane = kNoLane;
  int64_t cause = kNoCause;  // of a wait: the RunSpan of the task that ended it
  bool isCritical = false;
  int32_t expert = -1;  // of all ranks; -1: none, or not known
  int32_t peer = -1;    // of a task that sends: the rank to which it does; -1: none, or not known
};

// One entry at one rank. Nanoseconds.
struct Overlap {
  EntryId entry;
  int64_t step = 0;
  size_t rank = 0;
  int64_t time = 0;           // after bind
  int64_t compute = 0;        // its tasks that do not communicate, over the number of its workers
  int64_t communication = 0;  // when it sent, was sent to, or waited for rows: the union
  double efficiency() const;  // the larger of the two over the time; 1: the smaller one is hidden
};

// What the rows of an entry were, by rank and place of the expert.
struct RoutedRows {
  EntryId entry;
  std::vector<std::vector<int64_t>> counts;  // [source rank][place]
};

// The tasks of a family at all ranks.
struct FamilyTime {
  int64_t tasks = 0, time = 0, longest = 0;  // nanoseconds
  TaskWork work;
};

struct Run {
  std::vector<FamilyTime> families;  // by FamilyId
  std::vector<RunTrack> tracks;      // by rank, then worker; the steps last
  std::vector<RunLane> lanes;        // by rank, lane, core
  std::vector<RunSpan> spans;        // by track, then begin
  std::vector<Overlap> overlaps;
  std::vector<RoutedRows> routed;  // the last run of each entry that routes
  std::string leftOut;             // what is too large to show; empty: nothing
  std::string gaps;                // why links between spans are missing; empty: they are there
  int workers = 0;                 // per rank, the most
};

// A wait in the graph of a run that failed.
struct HangEdge {
  std::string from, to;  // "rank 2, core 5 and 3 more: up_proj[12,0]", or "rank 3: no trace"
  std::string label;     // "rows_arrived[12]: 96 of 128 rows"
  bool missing = false;  // nothing explains why it is not there
};

struct Hang {
  std::vector<std::string> messages;  // of the ranks, each once, in the order of their texts
  std::vector<HangEdge> edges;        // those that lead to what is missing first
  size_t leftOut = 0;                 // edges beyond kMaxEdges
};
inline constexpr size_t kMaxEdges = 64;

// Nothing if no run of `source` failed.
std::optional<Hang> findHang(const ReportSource& source);

inline double milli(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-6; }

// `source` has a run, and outlives the result.
Run analyseRun(const ReportSource& source);

}  // namespace sluice::tools
