// Recording of a trace: its clock, and one ring of spans per worker, written by that worker alone.
//
// Resource types. One thread enlarges rings between steps, while no worker runs; during a step nothing is
// allocated or locked. A full ring drops its oldest span and counts it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/exec/step.h"
#include "runtime/exec/trace_span.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace sluice {

// The clock of a recording: ticks that are cheap to read, turned into nanoseconds afterwards.
//
// Ticks are counts of the processor's time-stamp counter if the system itself uses it as its clock, which
// means that it is steady and equal on all cores; else they are nanoseconds of CLOCK_MONOTONIC. A value type;
// any thread may read it.
class TraceClock {
 public:
  TraceClock();

  int64_t ticks() const {
#if defined(__x86_64__)
    if (isCounter_) return static_cast<int64_t>(__rdtsc());
#endif
    return monotonicNanoseconds();
  }

  // Both clocks at the same moment.
  struct Anchor {
    int64_t ticks = 0;
    int64_t nanoseconds = 0;
  };
  Anchor anchor() const { return {ticks(), monotonicNanoseconds()}; }

 private:
  bool isCounter_ = false;
};

// The time of `ticks`, on the line through the anchors. Later ticks never give an earlier time.
int64_t toNanoseconds(int64_t ticks, const TraceClock::Anchor& from, const TraceClock::Anchor& to);

// Aligned so that no two workers write one cache line.
class alignas(64) SpanRing {
 public:
  explicit SpanRing(size_t most) : most_(most) {}

  // Makes room for `more` spans in addition to the existing ones, as far as the limit and the memory allow.
  void makeRoom(size_t more);

  void add(const TraceSpan& span) {
    if (held_ < spans_.size())
      ++held_;
    else
      ++dropped_;
    if (spans_.empty()) return;
    spans_[next_] = span;
    next_ = next_ + 1 < spans_.size() ? next_ + 1 : 0;
  }

  void clear() {
    next_ = 0;
    held_ = 0;
    dropped_ = 0;
  }

  // Moves all spans to the end of `trace`, oldest first.
  void moveTo(Trace& trace);

 private:
  // Puts the oldest span first.
  void straighten();

  size_t most_;
  std::vector<TraceSpan> spans_;
  size_t next_ = 0;
  size_t held_ = 0;
  int64_t dropped_ = 0;
};

// A trace keeps no more routing than 64 MiB.
inline constexpr size_t kMaxPlaces = size_t{1} << 24;

// The rings of one rank.
//
// Workers record ticks(), which take() converts to nanoseconds; the rank's own spans are in nanoseconds.
class TraceRecorder {
 public:
  // Keeps at most `most` spans per worker.
  TraceRecorder(int workers, size_t most)
      : rank_(most), workers_(static_cast<size_t>(workers), SpanRing(most)), begin_(clock_.anchor()) {}

  SpanRing& rank() { return rank_; }
  // Returns the index for TraceSpan::index of the run that had these tables; -1: more than kMaxPlaces are
  // there.
  int64_t addRouting(const Step& step);
  // The run failed, and its next tasks were what addNext() got.
  void fail(EntryId entry, int64_t step, std::string message);
  void addNext(NextTask next) { failed_.next.push_back(std::move(next)); }
  SpanRing& worker(int worker) { return workers_[static_cast<size_t>(worker)]; }
  const TraceClock& clock() const { return clock_; }
  Trace take();
  // Begins anew, in the same memory.
  void clear();

 private:
  SpanRing rank_;
  std::vector<SpanRing> workers_;
  std::vector<TracedRouting> routings_;
  size_t places_ = 0;  // in all routings
  FailedRun failed_;
  TraceClock clock_;
  TraceClock::Anchor begin_;  // of the current recording
};

// What one worker records in one step. Without a ring every call is only a branch.
class WorkerTrace {
 public:
  WorkerTrace(TraceRecorder* recorder, const Step& step, int worker)
      : ring_(recorder ? &recorder->worker(worker) : nullptr),
        clock_(recorder ? &recorder->clock() : nullptr),
        step_(step),
        worker_(worker) {}

  // The worker polls for the first time; the tasks' part of the run began at `begin`.
  void start(int64_t begin) {
    if (ring_) recordIdle(SpanKind::kStart, begin, clock_->ticks());
  }
  // The worker had nothing left to do from `begin` on; the run ended at `end`.
  void finish(int64_t begin, int64_t end) {
    if (ring_) recordIdle(SpanKind::kEnd, begin, end);
  }
  // No head is ready. May be called repeatedly.
  void wait() {
    if (ring_ && waitBegin_ == 0) waitBegin_ = clock_->ticks();
  }
  // `missing` is the index of the wait, of the task's two, that was the last to be found incomplete. A task
  // without waits ends no wait: it was ready before, in the lane of another worker.
  void beginTask(const Task& task, int core, int missing) {
    if (ring_) recordBegin(task, core, missing);
  }
  void endTask(const Task& task, int core) {
    if (ring_) recordEnd(task, core);
  }
  // The run has failed while the worker waited, of all tasks for this one first.
  void stop(const Task& task, int core, int missing) {
    if (ring_) recordWait(SpanKind::kStuck, task, core, missing, clock_->ticks());
  }

 private:
  void recordIdle(SpanKind kind, int64_t begin, int64_t end);
  void recordBegin(const Task& task, int core, int missing);
  void recordWait(SpanKind kind, const Task& task, int core, int missing, int64_t end);
  void recordEnd(const Task& task, int core);
  TraceSpan makeSpan(const Task& task, int core) const;

  SpanRing* const ring_;
  const TraceClock* const clock_;
  const Step& step_;
  const int worker_;
  int64_t waitBegin_ = 0;  // 0: not waiting
  int64_t taskBegin_ = 0;
};

}  // namespace sluice
