#include <algorithm>
#include <limits>
#include <new>

#include "runtime/exec/backoff.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/report.h"
#include "runtime/program/words.h"

namespace sluice {
namespace {

constexpr uint64_t kFinished = std::numeric_limits<uint64_t>::max();

uint64_t packProgress(int64_t window, size_t position) {
  return static_cast<uint64_t>(window) << 24 | position;
}

// The seat that the lane's core `core` runs in window `window`.
size_t seatOf(const Lane& lane, int core, int64_t window) {
  const int64_t cores = static_cast<int64_t>(lane.seats.size());
  return static_cast<size_t>(((core - window * lane.rotation) % cores + cores) % cores);
}

int allCores(const TaskProgram& program) { return program.cores + program.cubeCores + program.vectorCores; }

// The number of a lane's first core among the cores of all kinds.
int firstCoreOf(const TaskProgram& program, const Lane& lane) {
  return lane.firstCore + (lane.core == CoreKind::kVector ? program.cubeCores : 0);
}

// By lane, the index of its first core's progress; then their number.
std::vector<size_t> progressPlaces(const TaskProgram& program) {
  std::vector<size_t> places = {0};
  for (const Lane& lane : program.lanes) places.push_back(places.back() + lane.seats.size());
  return places;
}

}  // namespace

void LaneCursor::start(const Step& step) {
  live_ = liveSlots(*step.tables, step.program().at(step.program().at(lane_).space).kind);
  window_ = 0;
  task_ = {};
  enterWindow(step);
  settle(step);
}

int64_t LaneCursor::maxTasks(const Step& step) const {
  const Lane& lane = step.program().at(lane_);
  const Space& space = step.program().at(lane.space);
  size_t longest = 0;
  for (const auto& seat : lane.seats) longest = std::max(longest, seat.size());
  return (liveSlots(*step.tables, space.kind) + space.window - 1) / space.window *
         static_cast<int64_t>(longest);
}

void LaneCursor::enterWindow(const Step& step) {
  const Lane& lane = step.program().at(lane_);
  firstSlot_ = window_ * step.program().at(lane.space).window;
  seat_ = lane.seats[seatOf(lane, core_, window_)];
  position_ = 0;
}

// Moves on to the next record whose slot is live, or to the end.
void LaneCursor::settle(const Step& step) {
  while (firstSlot_ < live_) {
    while (position_ < seat_.size() && firstSlot_ + seat_[position_].slot >= live_) ++position_;
    if (position_ < seat_.size()) {
      done_ = false;
      await(step);
      progress_->store(packProgress(window_, position_), std::memory_order_relaxed);
      return;
    }
    ++window_;
    enterWindow(step);
  }
  done_ = true;
  progress_->store(kFinished, std::memory_order_relaxed);
}

// Tiles of one slot wait for the same events.
void LaneCursor::await(const Step& step) {
  const TaskRecord& record = seat_[position_];
  const int64_t slot = firstSlot_ + record.slot;
  const bool isSame = task_.family == record.family && task_.slot == slot;
  task_ = {record.family, slot, static_cast<int32_t>(record.tile)};
  if (isSame) return;
  const FamilyPlan& family = step.plan->at(record.family);
  for (int i = 0; i < 2; ++i) {
    const EventId wait = family.waits[i];
    waits_[i] = wait ? step.events->counter(
                           wait, eventIndex(*step.tables, family.space, slot, step.program().at(wait).space))
                     : EventCounter{};
  }
}

int ParallelExecutor::usefulThreads(const Plan& plan) { return allCores(plan.program()); }

ParallelExecutor::ParallelExecutor(const Plan& plan, Workers& workers)
    : plan_(&plan),
      workers_(&workers),
      threads_(std::min(workers.count(), usefulThreads(plan))),
      firstProgress_(progressPlaces(plan.program())),
      progress_(firstProgress_.back()) {
  const TaskProgram& program = plan.program();
  for (int worker = 0; worker < threads_; ++worker) {
    std::vector<EntryCursors> entries(program.entries.size());
    for (uint32_t entry = 0; entry < program.entries.size(); ++entry) {
      for (LaneId id : plan.at(EntryId{entry}).lanes) {
        const Lane& lane = program.at(id);
        std::vector<LaneCursor> cores;
        for (int core = 0; core < static_cast<int>(lane.seats.size()); ++core)
          if ((firstCoreOf(program, lane) + core) % threads_ == worker)
            cores.emplace_back(id, core, &progress_[firstProgress_[id.value] + core]);
        entries[entry].push_back(std::move(cores));
      }
    }
    cursors_.push_back(std::move(entries));
  }
  tasks_.resize(threads_);
  ends_.resize(threads_);
}

Expected<int64_t> ParallelExecutor::run(const Step& step, std::span<const Scratch> scratch,
                                        double timeoutSeconds, TraceRecorder* trace) {
  struct Job {
    ParallelExecutor* executor;
    const Step* step;
  } job{this, &step};
  timeoutSeconds_ = timeoutSeconds;
  scratch_ = scratch;
  trace_ = trace;
  if (trace) {
    makeRoom(step, *trace);
    begin_ = trace->clock().ticks();
  }
  workers_->run(
      threads_,
      [](void* context, int worker) {
        auto* job = static_cast<Job*>(context);
        job->executor->work(*job->step, worker);
      },
      &job);
  if (trace) {
    const int64_t end = trace->clock().ticks();
    for (int worker = 0; worker < threads_; ++worker)
      WorkerTrace(trace, step, worker).finish(ends_[worker], end);
  }
  if (step.transport->isAborted()) return Error{failure(step)};
  int64_t tasks = 0;
  for (int64_t count : tasks_) tasks += count;
  return tasks;
}

// A task and the wait before it, and the worker's begin and end.
void ParallelExecutor::makeRoom(const Step& step, TraceRecorder& trace) {
  for (int worker = 0; worker < threads_; ++worker) {
    int64_t tasks = 0;
    for (const auto& lane : cursors_[worker][step.entry.value])
      for (const LaneCursor& cursor : lane) tasks += cursor.maxTasks(step);
    trace.worker(worker).makeRoom(static_cast<size_t>(2 * tasks + 2));
  }
}

void ParallelExecutor::work(const Step& step, int worker) {
  EntryCursors& cursors = cursors_[worker][step.entry.value];
  WorkerTrace trace(trace_, step, worker);
  trace.start(begin_);
  for (auto& lane : cursors)
    for (LaneCursor& cursor : lane) cursor.start(step);
  tasks_[worker] = 0;
  int64_t tasks = 0;
  Doorbell& doorbell = step.transport->doorbell();
  Backoff backoff(doorbell, timeoutSeconds_);
  while (!step.transport->isAborted()) {
    // read before the heads are looked at: a signal in between rings, and the park returns at once
    const uint32_t epoch = doorbell.epoch();
    bool anyLeft = false;
    if (LaneCursor* head = readyHead(cursors, anyLeft)) {
      trace.beginTask(head->task(), head->core(), head->missing());
      runTask(step, head->task(), scratch_[worker].data());
      trace.endTask(head->task(), head->core());
      head->next(step);
      ++tasks;
      backoff.reset();
      continue;
    }
    if (!anyLeft) break;
    trace.wait();
    const LaneCursor& waiting = earliest(cursors);
    const int32_t segment = plan_->verified().order()[waiting.task().family.value].segment;
    if (!backoff.wait(epoch, segment)) {
      abort(step, waiting, -1);
    } else if (backoff.isParking()) {
      if (const int left = rankThatLeftOwing(step, waiting.task()); left >= 0) abort(step, waiting, left);
    }
  }
  tasks_[worker] = tasks;
  if (trace_) ends_[worker] = trace_->clock().ticks();
}

// The first ready head, by lane priority, inside a lane by slot and tile: a slot is finished before the next
// is begun.
LaneCursor* ParallelExecutor::readyHead(EntryCursors& cursors, bool& anyLeft) {
  for (auto& lane : cursors) {
    LaneCursor* first = nullptr;
    for (LaneCursor& cursor : lane) {
      if (cursor.done()) continue;
      anyLeft = true;
      const auto place = [](const LaneCursor& c) { return std::pair(c.task().slot, c.task().tile); };
      if (first && place(*first) < place(cursor)) continue;
      if (cursor.ready()) first = &cursor;
    }
    if (first) return first;
  }
  return nullptr;
}

// The earliest family in key order is nearest to the cause of a wait. At least one cursor is not done.
const LaneCursor& ParallelExecutor::earliest(const EntryCursors& cursors) const {
  const LaneCursor* first = nullptr;
  const auto order = [&](const LaneCursor& c) { return plan_->verified().order()[c.task().family.value]; };
  for (const auto& lane : cursors)
    for (const LaneCursor& cursor : lane)
      if (!cursor.done() && (!first || order(cursor) < order(*first))) first = &cursor;
  return *first;
}

std::string ParallelExecutor::coreOf(const LaneCursor& cursor) const {
  const Lane& lane = plan_->program().at(cursor.lane());
  return text::coreName(lane.core, lane.firstCore + cursor.core());
}

// Rank `left` has left or, if that is -1, the time limit has passed.
void ParallelExecutor::abort(const Step& step, const LaneCursor& waiting, int left) const {
  const auto done = [&](const Task& task) { return isDone(step, task); };
  try {
    step.transport->abort(left < 0
                              ? describeWait(step, waiting.task(), coreOf(waiting), timeoutSeconds_, done)
                              : describeLeft(step, waiting.task(), coreOf(waiting), left, done));
  } catch (const std::bad_alloc&) {
    step.transport->abort("out of memory");  // so short that it needs none
  }
}

// For an aborted step, after all workers have ended: the earliest head that waits for other ranks, or else
// for anything, is what a lost rank is missed for.
std::string ParallelExecutor::failure(const Step& step) const {
  const LaneCursor* first = nullptr;
  const auto order = [&](const LaneCursor& c) {
    return std::pair(!waitsForRanks(step, c.task()), plan_->verified().order()[c.task().family.value]);
  };
  for (const auto& entries : cursors_)
    for (const auto& lane : entries[step.entry.value])
      for (const LaneCursor& cursor : lane)
        if (!cursor.done() && !isReady(step, cursor.task()) && (!first || order(cursor) < order(*first)))
          first = &cursor;
  const Task task = first ? first->task() : Task{};
  return describeAbort(step, first ? &task : nullptr, first ? coreOf(*first) : "",
                       [&](const Task& other) { return isDone(step, other); });
}

bool ParallelExecutor::isDone(const Step& step, const Task& task) const {
  const LaneId laneId = plan_->at(task.family).lane;
  const Lane& lane = step.program().at(laneId);
  const int64_t slots = step.program().at(lane.space).window;
  const int64_t window = task.slot / slots;
  for (int core = 0; core < static_cast<int>(lane.seats.size()); ++core) {
    const auto& seat = lane.seats[seatOf(lane, core, window)];
    for (size_t position = 0; position < seat.size(); ++position) {
      const TaskRecord& record = seat[position];
      if (record.family != task.family || record.slot != task.slot % slots ||
          record.tile != static_cast<uint32_t>(task.tile))
        continue;
      const auto& progress = progress_[firstProgress_[laneId.value] + core];
      return progress.load(std::memory_order_relaxed) > packProgress(window, position);
    }
  }
  return true;
}

}  // namespace sluice
