// Executors: they run all tasks of a step at one rank.
//
// Both give the same bits. Waits are bounded: a wait beyond the limit aborts the step on all ranks with a
// report (report.h). When a run returns, even with an error, nothing of this rank uses bound memory any more.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/exec/step.h"
#include "runtime/exec/trace.h"
#include "runtime/workers/workers.h"

namespace sluice {

// Scratch memory of one worker: 64-byte aligned, Plan::scratchBytes() long.
class Scratch {
 public:
  // Error: not enough memory.
  static Expected<Scratch> allocate(size_t bytes);
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  explicit Scratch(std::byte* data) : data_(data) {}
  std::unique_ptr<std::byte, Free> data_;
};

// The oracle: one thread runs all tasks in key order and waits for each. Returns the number of tasks run. A
// trace, if given, has one worker.
Expected<int64_t> runSerial(const Step& step, const Scratch& scratch, double timeoutSeconds,
                            TraceRecorder* trace = nullptr);

// A core's place in a lane: the next task, over all windows. `core` is counted from the first of the lane.
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
    for (int i = 0; i < 2; ++i) {
      if (waits_[i].isComplete()) continue;
      missing_ = i;
      return false;
    }
    return true;
  }
  // The wait that was incomplete when ready() last returned false.
  int missing() const { return missing_; }
  const Task& task() const { return task_; }
  LaneId lane() const { return lane_; }
  int core() const { return core_; }

 private:
  void enterWindow(const Step& step);
  void settle(const Step& step);
  void await(const Step& step);

  LaneId lane_;
  int core_;
  std::atomic<uint64_t>* progress_;  // (window, position) for reports, written by this cursor only
  int64_t live_ = 0;                 // slots
  int64_t window_ = 0;
  int64_t firstSlot_ = 0;             // of the window
  std::span<const TaskRecord> seat_;  // of the window
  size_t position_ = 0;
  bool done_ = true;
  Task task_;
  std::array<EventCounter, 2> waits_;  // of the task
  int missing_ = 0;
};

// Workers that try the head of every lane they serve, in priority order. Worker w plays the cores c with c
// mod workers == w; where matrix and vector cores are separate, vector cores are numbered after matrix cores.
//
// The workers belong to the workspace, which outlives this: executors of several programs use them in turn.
class ParallelExecutor {
 public:
  ParallelExecutor(const Plan& plan, Workers& workers);

  // The most threads that are useful: one per core of any kind.
  static int usefulThreads(const Plan& plan);

  int threads() const { return threads_; }
  // `scratch` of at least as many workers.
  Expected<int64_t> run(const Step& step, std::span<const Scratch> scratch, double timeoutSeconds,
                        TraceRecorder* trace = nullptr);

 private:
  // Cursors of one entry for one worker: lanes by priority, inside a lane by core.
  using EntryCursors = std::vector<std::vector<LaneCursor>>;

  void work(const Step& step, int worker);
  LaneCursor* readyHead(EntryCursors& cursors, bool& anyLeft);
  void makeRoom(const Step& step, TraceRecorder& trace);
  const LaneCursor& earliest(const EntryCursors& cursors) const;
  void abort(const Step& step, const LaneCursor& waiting, int left) const;
  std::string failure(const Step& step) const;
  std::string coreOf(const LaneCursor& cursor) const;
  bool isDone(const Step& step, const Task& task) const;

  const Plan* plan_;
  Workers* workers_;
  int threads_;
  std::vector<size_t> firstProgress_;               // by lane: of its first core
  std::vector<std::atomic<uint64_t>> progress_;     // [lane][core]
  std::vector<std::vector<EntryCursors>> cursors_;  // [worker][entry]
  std::span<const Scratch> scratch_;                // by worker, of this run
  std::vector<int64_t> tasks_;                      // by worker
  std::vector<int64_t> ends_;                       // by worker, where there is a trace
  TraceRecorder* trace_ = nullptr;                  // of this run
  int64_t begin_ = 0;
  double timeoutSeconds_ = 0;
};

}  // namespace sluice
