#include "runtime/sim/sim_rank.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "runtime/exec/report.h"
#include "runtime/program/op_table.h"

namespace sluice {
namespace {

int64_t perSecond(double bytes, double seconds) {
  return seconds > 0 ? static_cast<int64_t>(std::llround(bytes / seconds)) : 0;
}

double ownShare(double shared, int64_t asked) {
  return static_cast<double>(asked) <= shared ? 1 : shared / static_cast<double>(asked);
}

}  // namespace

void SimRank::Unmap::operator()(void* memory) const { munmap(memory, bytes); }

SimRank::Words SimRank::mapZeros(size_t bytes) {
  bytes = std::max<size_t>(1, bytes);
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return Words(static_cast<uint64_t*>(memory), Unmap{bytes});
}

const TaskCost& TaskCosts::alone(FamilyId family, double rows, double reuse) {
  Last& last = last_[family.value];
  if (last.rows != rows || last.reuse != reuse)
    last = {rows, reuse, taskCost(program_, program_.at(family), rows, reuse, TaskRates(rates_))};
  return last.cost;
}

double TaskCosts::seconds(FamilyId family, double rows, double reuse, double readPart,
                          double writePart) const {
  TaskRates rates(rates_);
  rates.read *= readPart;
  rates.write *= writePart;
  return taskCost(program_, program_.at(family), rows, reuse, rates).seconds();
}

SimRank::SimRank(const Plan& plan, EntryId entry, int rank, const RoutingTables& tables, int workers,
                 bool spans, TaskCosts& costs)
    : plan_(plan),
      costs_(costs),
      spans_(spans),
      progress_(plan.program()),
      families_(plan.program().families.size()) {
  const int ranks = plan.program().mesh.peers();
  const size_t bytes = EventTable::bytesFor(plan, ranks);
  words_ = mapZeros(bytes);
  needs_ = mapZeros(bytes / kCacheLine * sizeof(uint64_t));
  events_ = EventTable(plan, ranks, {{}, reinterpret_cast<std::byte*>(words_.get()), bytes});
  events_.setThresholds(plan, entry, tables);
  for (uint32_t e = 0; e < plan.program().events.size(); ++e) {
    if (plan.program().events[e].entry != entry) continue;
    for (int64_t i = 0; i < events_.live(EventId{e}); ++i)
      needs_.get()[events_.word(EventId{e}, i) / kCacheLine] = events_.need(EventId{e}, i);
  }
  step_ = {&plan, rank, nullptr, &events_, &tables, entry, {}, WorkKind::kAll};
  workers_.resize(static_cast<size_t>(workers));
  for (int w = 0; w < workers; ++w) {
    workers_[w].cursors = makeCursors(plan, entry, w, workers, progress_);
    for (auto& lane : workers_[w].cursors)
      for (LaneCursor& cursor : lane) cursor.start(step_);
  }
  times_.rows = tables.rows;
}

void SimRank::startReady(SimTime now, std::vector<Started>& started) {
  const size_t first = started.size();
  const auto consider = [&](int w) {
    if (tryStart(workers_[w], now)) started.push_back({w, 0});
  };
  if (isCompleted_) {
    for (int w = 0; w < static_cast<int>(workers_.size()); ++w) consider(w);
  } else {
    std::ranges::sort(freed_);
    for (const int w : freed_) consider(w);
  }
  isCompleted_ = false;
  freed_.clear();
  if (started.size() == first) return;
  advance(now);
  for (size_t i = first; i < started.size(); ++i) begin(workers_[started[i].worker]);
  // after all of them have asked for memory
  for (size_t i = first; i < started.size(); ++i)
    started[i].end = now + taskDuration(workers_[started[i].worker]);
}

// Whether it had a ready head, which it then has as its task.
bool SimRank::tryStart(Worker& worker, SimTime now) {
  if (worker.head != nullptr || worker.isDone) return false;
  bool anyLeft = false;
  LaneCursor* const head = readyHead(worker.cursors, anyLeft);
  worker.isDone = !anyLeft;
  if (head == nullptr) return false;
  if (now > worker.since) recordWait(worker, *head, now);
  worker.head = head;
  worker.since = now;
  return true;
}

void SimRank::begin(Worker& worker) {
  const Task& task = worker.head->task();
  const SpaceKind space = plan_.at(task.family).space;
  const int32_t slotSize = space == SpaceKind::kTokens ? plan_.space(space)->slotSize : 0;
  worker.work = slotWork(*step_.tables, space, task.slot, slotSize);
  const TaskCost& alone = costs_.alone(task.family, worker.work.rows, worker.work.reuse);
  worker.reads = perSecond(alone.read, alone.seconds());
  worker.writes = perSecond(alone.written, alone.seconds());
  reads_ += worker.reads;
  writes_ += worker.writes;
  computing_ += isComputing(task);
  outstanding_ += isLeaving(task);
}

SimTime SimRank::taskDuration(const Worker& worker) const {
  const FamilyId family = worker.head->task().family;
  const MemoryRates& memory = costs_.rates().memory;
  const double readPart = ownShare(memory.sharedRead, reads_),
               writePart = ownShare(memory.sharedWrite, writes_);
  if (readPart == 1 && writePart == 1)
    return toSimTime(costs_.alone(family, worker.work.rows, worker.work.reuse).seconds());
  return toSimTime(costs_.seconds(family, worker.work.rows, worker.work.reuse, readPart, writePart));
}

Task SimRank::finish(int index, SimTime now) {
  advance(now);
  Worker& worker = workers_[static_cast<size_t>(index)];
  const Task task = worker.head->task();
  const OpInfo& op = findInfo(step_.program().at(task.family).op);
  const SimTime length = now - worker.since;
  times_.busy[static_cast<size_t>(step_.program().at(task.family).core)] += length;
  if (op.multiplies() || op.isSum()) times_.products += length;
  ++times_.tasks;
  times_.end = std::max(times_.end, now);
  SimFamily& family = families_[task.family.value];
  if (family.tasks == 0 || worker.since < family.firstStart) family.firstStart = worker.since;
  family.lastEnd = std::max(family.lastEnd, now);
  family.busy += length;
  family.empty += worker.work.rows == 0;
  ++family.tasks;
  if (spans_) {
    trace_.spans.push_back(makeSpan(SpanKind::kTask, worker, worker.head, now));
    trace_.spans.back().rows = static_cast<int32_t>(worker.work.rows);
  }
  reads_ -= worker.reads;
  writes_ -= worker.writes;
  computing_ -= isComputing(task);
  outstanding_ -= isLeaving(task);
  worker.head->next(step_);
  worker.head = nullptr;
  worker.since = now;
  freed_.push_back(index);
  return task;
}

void SimRank::add(size_t word, uint64_t n) {
  uint64_t& have = words_.get()[word / sizeof(uint64_t)];
  const uint64_t need = needs_.get()[word / kCacheLine];
  if (have < need && have + n >= need) isCompleted_ = true;
  have += n;
}

void SimRank::countOutstanding(int change, SimTime now) {
  advance(now);
  outstanding_ += change;
}

void SimRank::countSent(int64_t bytes) {
  times_.sent += bytes;
  ++times_.messages;
}

bool SimRank::anyLeft() const {
  for (const Worker& worker : workers_)
    for (const auto& lane : worker.cursors)
      for (const LaneCursor& cursor : lane)
        if (!cursor.done()) return true;
  return false;
}

// What went on since the last change, up to now.
void SimRank::advance(SimTime now) {
  if (outstanding_ > 0) {
    times_.outstanding += now - changed_;
    if (computing_ == 0) times_.exposed += now - changed_;
  }
  changed_ = now;
}

bool SimRank::isComputing(const Task& task) const {
  return step_.program().at(task.family).core != CoreKind::kVector && !isRemote(plan_.at(task.family).space);
}

bool SimRank::isLeaving(const Task& task) const {
  const SpaceKind space = plan_.at(task.family).space;
  return isRemote(space) && taskPeer(step_, space, task.slot) != step_.rank;
}

TraceSpan SimRank::makeSpan(SpanKind kind, const Worker& worker, const LaneCursor* head, SimTime end) const {
  TraceSpan span;
  span.begin = toNanoseconds(worker.since);
  span.end = toNanoseconds(end);
  span.kind = kind;
  span.worker = static_cast<int32_t>(&worker - workers_.data());
  span.entry = step_.entry;
  if (head == nullptr) return span;
  span.lane = head->lane();
  span.core = step_.program().at(span.lane).firstCore + head->core();
  span.family = head->task().family;
  span.slot = head->task().slot;
  span.tile = head->task().tile;
  return span;
}

void SimRank::recordWait(const Worker& worker, const LaneCursor& head, SimTime now) {
  const Task& task = head.task();
  const std::vector<EventId>& waits = step_.program().at(task.family).waits;
  const auto missing = static_cast<size_t>(head.missing());
  const EventId event = missing < waits.size() ? waits[missing] : EventId{};
  const SimTime length = now - worker.since;
  (event && step_.program().at(event).remote ? times_.arrival : times_.producer) += length;
  SimWait& wait = waits_[{event.value, task.family.value}];
  wait.event = event;
  wait.family = task.family;
  wait.time += length;
  ++wait.waits;
  if (!spans_) return;
  TraceSpan span = makeSpan(SpanKind::kWait, worker, &head, now);
  span.event = event;
  if (event)
    span.index =
        eventIndex(*step_.tables, plan_.at(task.family).space, task.slot, step_.program().at(event).space);
  trace_.spans.push_back(span);
}

std::string SimRank::describeHang(Transport& transport, SimTime now) {
  step_.transport = &transport;
  const Worker* stuck = nullptr;
  const LaneCursor* first = nullptr;
  const auto order = [&](const LaneCursor& c) { return plan_.verified().order()[c.task().family.value]; };
  for (const Worker& worker : workers_) {
    if (worker.isDone) continue;
    const LaneCursor& head = earliestHead(plan_, worker.cursors);
    if (first != nullptr && !(order(head) < order(*first))) continue;
    first = &head;
    stuck = &worker;
  }
  const std::string message =
      describeWait(step_, first->task(), coreName(step_.program(), *first), toSeconds(now - stuck->since),
                   [&](const Task& task) { return progress_.isTaken(plan_, task); });
  step_.transport = nullptr;
  return message;
}

SimRankTimes SimRank::finishTimes() {
  for (const auto& [key, wait] : waits_) times_.waits.push_back(wait);
  for (const Worker& worker : workers_) {
    times_.idle += times_.end - std::min(worker.since, times_.end);
    if (spans_ && worker.since < times_.end)
      trace_.spans.push_back(makeSpan(SpanKind::kEnd, worker, nullptr, times_.end));
  }
  return std::move(times_);
}

Trace SimRank::takeTrace() {
  std::ranges::stable_sort(trace_.spans, {}, &TraceSpan::worker);
  return std::move(trace_);
}

}  // namespace sluice
