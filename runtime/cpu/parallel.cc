#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>
#include <numeric>

#include "runtime/cpu/backoff.h"
#include "runtime/cpu/cpu_executor.h"
#include "runtime/exec/report.h"

namespace sluice {
namespace {

// A worker whose own lanes have ended looks for tasks of others this many times, plus once per worker, before
// it stops.
constexpr int kIdleLooks = 40;

}  // namespace

ParallelExecutor::ParallelExecutor(std::shared_ptr<const Plan> of, const ops::KernelSet& kernels,
                                   int64_t panelBytes, WorkerPool& pool)
    : CpuExecutor(std::move(of), kernels, panelBytes),
      pool_(pool),
      threads_(std::min(pool.count(), countCores(plan().program()))),
      progress_(plan().program()) {
  for (int worker = 0; worker < threads_; ++worker) {
    shares_.push_back(std::make_unique<Share>());
    for (uint32_t entry = 0; entry < plan().program().entries.size(); ++entry)
      shares_.back()->entries.push_back(makeCursors(plan(), EntryId{entry}, worker, threads_, progress_));
  }
  tasks_.resize(threads_);
  ends_.resize(threads_);
}

// Here, and not in run(), so that a step for which no workers can be started is refused at all ranks.
Status ParallelExecutor::prepare(std::span<const BoundTensor> bound, Team* callers) {
  if (Status ready = CpuExecutor::prepare(bound, callers); !ready) return ready;
  if (!callers || !callers->has(threads_)) return lease();
  callers_ = callers;
  return {};
}

Status ParallelExecutor::lease() try {
  auto leased = pool_.lease();
  if (!leased) return leased.error();
  leased_ = std::move(*leased);
  return {};
} catch (const std::bad_alloc&) {
  return Error{"out of memory"};
}

Status ParallelExecutor::runWorkers(const Run& run) {
  struct Job {
    ParallelExecutor* executor;
    const Run* run;
  } job{this, &run};
  const auto work = [](void* context, int worker) {
    const auto* job = static_cast<const Job*>(context);
    job->executor->work(*job->run, worker);
  };
  if (callers_ && callers_->run(threads_, work, &job)) return {};
  // the caller has fewer threads than it said: the other ranks wait for this one already
  if (!leased_)
    if (Status leased = lease(); !leased) return leased;
  leased_->run(threads_, work, &job);
  return {};
}

Expected<int64_t> ParallelExecutor::runTasks(const CpuStep& step, const RunOptions& options) {
  TraceRecorder* const trace = options.trace;
  Run run{step, options, ++runs_};
  if (trace) {
    makeRoom(step, *trace);
    run.begin = trace->clock().ticks();
  }
  if (Status ran = runWorkers(run); !ran)
    step.transport->abort(fmt::format("rank {}: {}", step.rank, ran.error().message));
  release();
  if (step.transport->isAborted()) {
    if (trace) recordNext(step, *trace);
    return Error{failure(step)};
  }
  if (trace) {
    const int64_t end = trace->clock().ticks();
    for (int worker = 0; worker < threads_; ++worker)
      WorkerTrace(trace, step, worker).finish(ends_[worker], end);
  }
  return std::accumulate(tasks_.begin(), tasks_.end(), int64_t{0});
}

// Returns an upper bound on the number of tasks in the worker's own lanes.
int64_t ParallelExecutor::maxTasks(const Step& step, int worker) const {
  int64_t tasks = 0;
  for (const auto& lane : shares_[worker]->entries[step.entry.value])
    for (const LaneCursor& cursor : lane) tasks += cursor.maxTasks(step);
  return tasks;
}

// A task and the wait before it, for its own tasks and as many of others; and the worker's begin and end.
void ParallelExecutor::makeRoom(const Step& step, TraceRecorder& trace) {
  for (int worker = 0; worker < threads_; ++worker)
    trace.worker(worker).makeRoom(static_cast<size_t>(4 * maxTasks(step, worker) + 2));
}

// For an aborted step, after all workers have ended.
void ParallelExecutor::recordNext(const Step& step, TraceRecorder& trace) const {
  const auto done = [&](const Task& task) { return isDone(task); };
  for (const auto& share : shares_)
    for (const auto& lane : share->entries[step.entry.value])
      for (const LaneCursor& cursor : lane)
        if (!cursor.done()) trace.addNext(nextTask(step, cursor.task(), cursor.core(), done));
}

// Returns whether a task of this rank is done, as far as this thread can observe.
bool ParallelExecutor::isDone(const Task& task) const {
  for (const auto& share : shares_) {
    const std::lock_guard lock(share->mutex);
    if (share->task == task) return false;
  }
  return progress_.isTaken(plan(), task);
}

// A worker's lanes in this run, which begin with whoever looks at them first. The caller has the lock.
LaneCursors& ParallelExecutor::begun(const Run& run, Share& share) {
  LaneCursors& cursors = share.entries[run.step.entry.value];
  if (share.run == run.number) return cursors;
  share.run = run.number;
  for (auto& lane : cursors)
    for (LaneCursor& cursor : lane) cursor.start(run.step);
  return cursors;
}

// Takes the ready head of a worker's lanes. The caller has the lock.
ParallelExecutor::Look ParallelExecutor::take(const Run& run, Share& from) {
  Look look;
  if (LaneCursor* const head = readyHead(begun(run, from), look.anyLeft)) {
    look.head = *head;
    head->next(run.step);
  }
  return look;
}

// Finds what the worker runs next, and takes it: a head of its own lanes or, if none is ready, of the lanes
// of worker `other`, unless that is this worker, or its lanes are in use.
ParallelExecutor::Look ParallelExecutor::lookFor(const Run& run, int worker, int other) {
  Share& own = *shares_[worker];
  const std::lock_guard lock(own.mutex);
  Look look = take(run, own);
  if (!look.head && other != worker)
    if (const std::unique_lock theirs(shares_[other]->mutex, std::try_to_lock); theirs) {
      look.head = take(run, *shares_[other]).head;
      look.helps = true;
    }
  own.task = look.head ? std::optional(look.head->task()) : std::nullopt;
  return look;
}

void ParallelExecutor::endTask(int worker) {
  Share& own = *shares_[worker];
  const std::lock_guard lock(own.mutex);
  own.task.reset();
}

// The head of the worker's lanes that is the earliest in key order; none where the lanes have ended.
std::optional<LaneCursor> ParallelExecutor::earliest(const Run& run, int worker) {
  Share& own = *shares_[worker];
  const std::lock_guard lock(own.mutex);
  const LaneCursors& cursors = begun(run, own);
  for (const auto& lane : cursors)
    for (const LaneCursor& cursor : lane)
      if (!cursor.done()) return earliestHead(plan(), cursors);
  return {};
}

void ParallelExecutor::work(const Run& run, int worker) {
  const DefaultArithmetic alike;
  const CpuStep& step = run.step;
  std::byte* const scratch = findScratch(run.options, worker);
  WorkerTrace trace(run.options.trace, step, worker);
  trace.start(run.begin);
  int64_t tasks = 0, looks = 0, idleLooks = 0;
  int64_t toHelp = run.options.trace ? maxTasks(step, worker) : std::numeric_limits<int64_t>::max();
  Doorbell& doorbell = step.transport->doorbell();
  Backoff backoff(doorbell, run.options.timeoutSeconds);
  while (!step.transport->isAborted()) {
    // read before the heads are looked at: a signal in between rings, and the park returns at once
    const uint32_t epoch = doorbell.epoch();
    const int other = toHelp > 0 ? static_cast<int>((worker + looks++) % threads_) : worker;
    const Look look = lookFor(run, worker, other);
    if (const auto& head = look.head) {
      trace.beginTask(head->task(), head->core(), head->missing());
      runTask(step, head->task(), scratch);
      trace.endTask(head->task(), head->core());
      ++tasks;
      toHelp -= look.helps ? 1 : 0;
      idleLooks = 0;
      backoff.reset();
      continue;
    }
    if (!look.anyLeft) {
      if (++idleLooks > kIdleLooks + threads_) break;
      Backoff::pause();
      continue;
    }
    trace.wait();
    const auto waiting = earliest(run, worker);
    if (!waiting) continue;  // others have taken what was left
    const int32_t segment = plan().verified().order()[waiting->task().family.value].segment;
    if (!backoff.wait(epoch, segment)) {
      abort(run, *waiting, -1);
    } else if (backoff.isParking()) {
      if (const int left = rankThatLeftOwing(step, waiting->task()); left >= 0) abort(run, *waiting, left);
    }
  }
  tasks_[worker] = tasks;
  endTask(worker);
  if (const auto head = earliest(run, worker);
      head && !isReady(step, head->task()) && step.transport->isAborted())
    trace.stop(head->task(), head->core(), head->missing());
  if (run.options.trace) ends_[worker] = run.options.trace->clock().ticks();
}

// Rank `left` has left or, if that is -1, the time limit has passed.
void ParallelExecutor::abort(const Run& run, const LaneCursor& waiting, int left) const {
  const CpuStep& step = run.step;
  const auto done = [&](const Task& task) { return isDone(task); };
  try {
    const std::string core = coreName(step.program(), waiting);
    step.transport->abort(left < 0
                              ? describeWait(step, waiting.task(), core, run.options.timeoutSeconds, done)
                              : describeLeft(step, waiting.task(), core, left, done));
  } catch (const std::bad_alloc&) {
    step.transport->abort("out of memory");  // so short that it needs none
  }
}

// For an aborted step, after all workers have ended: the earliest head that waits for other ranks, or else
// for anything, is what a lost rank is missed for.
std::string ParallelExecutor::failure(const Step& step) const {
  const LaneCursor* first = nullptr;
  const auto order = [&](const LaneCursor& c) {
    return std::pair(!waitsForRanks(step, c.task()), plan().verified().order()[c.task().family.value]);
  };
  for (const auto& share : shares_)
    for (const auto& lane : share->entries[step.entry.value])
      for (const LaneCursor& cursor : lane)
        if (!cursor.done() && !isReady(step, cursor.task()) && (!first || order(cursor) < order(*first)))
          first = &cursor;
  const Task task = first ? first->task() : Task{};
  return describeAbort(step, first ? &task : nullptr, first ? coreName(step.program(), *first) : "",
                       [&](const Task& other) { return isDone(other); });
}

}  // namespace sluice
