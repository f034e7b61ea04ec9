// LaneCursor: a core's position in a lane, over all windows of a step. LaneProgress: the positions of the
// cores of all lanes, for reports.
//
// A device deals the cores of a program to its workers: worker w of n serves the cores c with c mod n == w.
// If matrix and vector cores are separate, vector cores are numbered after matrix cores. The results do not
// depend on n. One thread at a time uses a cursor and writes its progress, which any thread may read.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/exec/step.h"

namespace sluice {

// The number of cores of all kinds: additional workers have nothing to do.
int countCores(const TaskProgram& program);

// Where a task is: the core, counted from the lane's first one, the window, and the place in that window's
// seat.
struct LanePlace {
  int core = 0;
  int64_t window = 0;
  size_t position = 0;
};
LanePlace findPlace(const Plan& plan, const Task& task);

class LaneProgress {
 public:
  explicit LaneProgress(const TaskProgram& program);

  // The progress of the lane's core `core`, counted from its first.
  std::atomic<uint64_t>* at(LaneId lane, int core) { return &progress_[first_[lane.value] + core]; }
  // Whether the task of this rank has left its lane, to run, as far as this thread can observe.
  bool isTaken(const Plan& plan, const Task& task) const;

 private:
  std::vector<size_t> first_;                    // by lane: index of its first core
  std::vector<std::atomic<uint64_t>> progress_;  // [lane][core]
};

class LaneCursor {
 public:
  LaneCursor(LaneId lane, int core, std::atomic<uint64_t>* progress)
      : lane_(lane), core_(core), progress_(progress) {}

  void start(const Step& step);
  // An upper bound on the tasks of this step.
  int64_t maxTasks(const Step& step) const;
  void next(const Step& step) {
    ++position_;
    settle(step);
  }
  bool done() const { return done_; }
  bool ready() {
    for (int i = 0; i < static_cast<int>(waits_.size()); ++i) {
      if (waits_[i].isComplete()) continue;
      missing_ = i;
      return false;
    }
    return true;
  }
  // Index of the wait that was incomplete when ready() last returned false.
  int missing() const { return missing_; }
  const Task& task() const { return task_; }
  LaneId lane() const { return lane_; }
  // Counted from the lane's first core.
  int core() const { return core_; }

 private:
  void enterWindow(const Step& step);
  void settle(const Step& step);
  void await(const Step& step);

  LaneId lane_;
  int core_;
  std::atomic<uint64_t>* progress_;  // (window, position) for reports, written by this cursor only
  int64_t live_ = 0;                 // number of live slots
  int64_t window_ = 0;
  int64_t firstSlot_ = 0;             // of the current window
  std::span<const TaskRecord> seat_;  // of the current window
  size_t position_ = 0;
  bool done_ = true;
  Task task_;
  std::array<EventCounter, kMaxLinks> waits_;  // of the current task
  int missing_ = 0;
};

// Lanes by priority; within a lane, cursors by core.
using LaneCursors = std::vector<std::vector<LaneCursor>>;

// The cursors of an entry that a worker serves.
LaneCursors makeCursors(const Plan& plan, EntryId entry, int worker, int workers, LaneProgress& progress);

// The first ready head, by lane priority, inside a lane by slot and tile: a slot is finished before the next
// is begun. Null: none is ready. `anyLeft` becomes true if a cursor is not done.
LaneCursor* readyHead(LaneCursors& cursors, bool& anyLeft);

// The earliest head in key order, which is nearest to the cause of a wait. At least one cursor is not done.
const LaneCursor& earliestHead(const Plan& plan, const LaneCursors& cursors);

// The name of the cursor's core, for reports.
std::string coreName(const TaskProgram& program, const LaneCursor& cursor);

}  // namespace sluice
