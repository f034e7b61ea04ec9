// Executors: they run all tasks of a step at one rank.
//
// Both give the same bits. Waits are bounded: a wait beyond the limit aborts the step on all ranks with a
// report (report.h). When a run returns, even with an error, nothing of this rank uses bound memory any more.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/exec/lane_cursor.h"
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

// Workers that try the head of every lane they serve, in priority order.
//
// The workers belong to the workspace, which outlives this: executors of several programs use them in turn.
class ParallelExecutor {
 public:
  ParallelExecutor(const Plan& plan, Workers& workers);

  int threads() const { return threads_; }
  // `scratch` of at least as many workers.
  Expected<int64_t> run(const Step& step, std::span<const Scratch> scratch, double timeoutSeconds,
                        TraceRecorder* trace = nullptr);

 private:
  void work(const Step& step, int worker);
  LaneCursor* readyHead(LaneCursors& cursors, bool& anyLeft);
  void makeRoom(const Step& step, TraceRecorder& trace);
  const LaneCursor& earliest(const LaneCursors& cursors) const;
  void abort(const Step& step, const LaneCursor& waiting, int left) const;
  std::string failure(const Step& step) const;

  const Plan* plan_;
  Workers* workers_;
  int threads_;
  LaneProgress progress_;
  std::vector<std::vector<LaneCursors>> cursors_;  // [worker][entry]
  std::span<const Scratch> scratch_;               // by worker, of this run
  std::vector<int64_t> tasks_;                     // by worker
  std::vector<int64_t> ends_;                      // by worker, where there is a trace
  TraceRecorder* trace_ = nullptr;                 // of this run
  int64_t begin_ = 0;
  double timeoutSeconds_ = 0;
};

}  // namespace sluice
