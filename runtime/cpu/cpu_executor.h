// CpuExecutor: what executors on CPU threads have in common; and the two that there are. They differ only in
// the order in which tasks run, and give the same bits.
//
// Waits are bounded: a wait beyond the limit aborts the step on all ranks with a report
// (runtime/exec/report.h).
#pragma once

#include <cfenv>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cpu/cpu_step.h"
#include "runtime/cpu/weight_panels.h"
#include "runtime/exec/device.h"
#include "runtime/exec/lane_cursor.h"
#include "runtime/exec/trace.h"
#include "runtime/workers/worker_pool.h"

namespace sluice {

class CpuExecutor : public Executor {
 public:
  size_t scratchBytes() const final;
  Status prepare(std::span<const BoundTensor> bound, Team* callers) override;
  Expected<int64_t> run(const Step& step, const RunOptions& options) final;
  PackedWeights packedWeights() const final { return panels_.packed(); }

 protected:
  CpuExecutor(std::shared_ptr<const Plan> plan, const ops::KernelSet& kernels, int64_t panelBytes);

  const Plan& plan() const { return *plan_; }
  // Returns a worker's part of the scratch memory of the run.
  std::byte* findScratch(const RunOptions& options, int worker) const {
    return options.scratch + static_cast<size_t>(worker) * scratchStride_;
  }

 private:
  virtual Expected<int64_t> runTasks(const CpuStep& step, const RunOptions& options) = 0;

  const std::shared_ptr<const Plan> plan_;
  const ops::KernelSet& kernels_;
  const size_t scratchStride_;
  WeightPanels panels_;
};

// The oracle: the calling thread runs all tasks in key order and waits for each.
class SerialExecutor final : public CpuExecutor {
 public:
  SerialExecutor(std::shared_ptr<const Plan> plan, const ops::KernelSet& kernels, int64_t panelBytes)
      : CpuExecutor(std::move(plan), kernels, panelBytes) {}

  int workers() const override { return 1; }

 private:
  Expected<int64_t> runTasks(const CpuStep& step, const RunOptions& options) override;
};

// Workers that try the head of every lane they serve, in priority order. A worker that finds none ready takes
// the head of a lane that another one serves: cores of one machine are not equally fast, and rows are not
// dealt evenly. Waits are for heads of its own lanes only; when these have ended, it leaves as soon as it
// finds no other task that is ready.
//
// They are threads of the caller where it lends as many. Otherwise each step leases them, from its prepare()
// on, from the pool of the device, which outlives this.
class ParallelExecutor final : public CpuExecutor {
 public:
  ParallelExecutor(std::shared_ptr<const Plan> plan, const ops::KernelSet& kernels, int64_t panelBytes,
                   WorkerPool& pool);

  int workers() const override { return threads_; }
  Status prepare(std::span<const BoundTensor> bound, Team* callers) override;
  void release() override {
    callers_ = nullptr;
    leased_.reset();
  }

 private:
  // What the workers of a run share.
  struct Run {
    const CpuStep& step;
    const RunOptions& options;
    uint64_t number = 0;
    int64_t begin = 0;  // in ticks, where there is a trace
  };

  // What a worker serves, and other workers may take tasks from. Aligned so that no two workers write one
  // cache line.
  struct alignas(64) Share {
    std::mutex mutex;
    uint64_t run = 0;                  // the last run that began to serve it
    std::vector<LaneCursors> entries;  // by entry
    std::optional<Task> task;          // that the worker runs, until it looks for the next one
  };

  // What a worker finds.
  struct Look {
    std::optional<LaneCursor> head;  // to run now; its lane is behind it already
    bool helps = false;              // it is in a lane of another worker
    bool anyLeft = false;            // in the worker's own lanes
  };

  Expected<int64_t> runTasks(const CpuStep& step, const RunOptions& options) override;
  Status lease();
  Status runWorkers(const Run& run);
  void work(const Run& run, int worker);
  static LaneCursors& begun(const Run& run, Share& share);
  static Look take(const Run& run, Share& from);
  Look lookFor(const Run& run, int worker, int other);
  void endTask(int worker);
  std::optional<LaneCursor> earliest(const Run& run, int worker);
  bool isDone(const Task& task) const;
  int64_t maxTasks(const Step& step, int worker) const;
  void makeRoom(const Step& step, TraceRecorder& trace);
  void abort(const Run& run, const LaneCursor& waiting, int left) const;
  void recordNext(const Step& step, TraceRecorder& trace) const;
  std::string failure(const Step& step) const;

  WorkerPool& pool_;
  Team* callers_ = nullptr;   // of the step; null: it does not use them
  WorkerPool::Lease leased_;  // of the step; null: it does not use any
  int threads_;
  LaneProgress progress_;
  std::vector<std::unique_ptr<Share>> shares_;  // by worker
  uint64_t runs_ = 0;
  std::vector<int64_t> tasks_;  // by worker
  std::vector<int64_t> ends_;   // by worker, where there is a trace
};

// During its lifetime its thread rounds to nearest and keeps subnormal numbers, whatever the thread's owner
// has chosen. Tasks may run in threads of the caller, and give the same bits in all.
class DefaultArithmetic {
 public:
  DefaultArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultArithmetic() { std::fesetenv(&before_); }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace sluice
