#include "runtime/exec/trace.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <new>
#include <string>
#include <tuple>
#include <utility>

namespace sluice {

TraceClock::TraceClock() {
#if defined(__x86_64__)
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string source;
  isCounter_ = std::getline(file, source) && source == "tsc";
#endif
}

int64_t toNanoseconds(int64_t ticks, const TraceClock::Anchor& from, const TraceClock::Anchor& to) {
  const int64_t length = to.ticks - from.ticks;
  const double rate =
      length > 0 ? static_cast<double>(to.nanoseconds - from.nanoseconds) / static_cast<double>(length) : 1;
  return from.nanoseconds + std::llround(static_cast<double>(ticks - from.ticks) * rate);
}

void SpanRing::straighten() {
  const ptrdiff_t oldest = held_ < spans_.size() ? 0 : static_cast<ptrdiff_t>(next_);
  std::rotate(spans_.begin(), spans_.begin() + oldest, spans_.end());
  next_ = held_ < spans_.size() ? held_ : 0;
}

void SpanRing::makeRoom(size_t more) {
  const size_t wanted = std::min(most_, held_ + more);
  if (wanted <= spans_.size()) return;
  straighten();
  try {
    spans_.resize(std::min(most_, std::max(wanted, 2 * spans_.size())));
    next_ = held_;
  } catch (const std::bad_alloc&) {
    // the ring keeps its size and drops spans
  }
}

void SpanRing::moveTo(Trace& trace) {
  straighten();
  trace.spans.insert(trace.spans.end(), spans_.begin(), spans_.begin() + static_cast<ptrdiff_t>(held_));
  trace.dropped += dropped_;
  clear();
}

int64_t TraceRecorder::addRouting(const Step& step) {
  TracedRouting routing{step.tables->tokens, listPlaces(step.plan->routingShape(), *step.tables)};
  if (routings_.empty() || routings_.back() != routing) {
    if (places_ + routing.places.size() > kMaxPlaces) return -1;
    places_ += routing.places.size();
    routings_.push_back(std::move(routing));
  }
  return std::ssize(routings_) - 1;
}

void TraceRecorder::fail(EntryId entry, int64_t step, std::string message) {
  failed_.entry = entry;
  failed_.step = step;
  failed_.message = std::move(message);
}

void TraceRecorder::clear() {
  rank_.clear();
  for (SpanRing& ring : workers_) ring.clear();
  routings_.clear();
  places_ = 0;
  failed_ = {};
  begin_ = clock_.anchor();
}

Trace TraceRecorder::take() {
  Trace trace;
  trace.routings = std::exchange(routings_, {});
  trace.failed = std::exchange(failed_, {});
  std::ranges::sort(trace.failed.next, {},
                    [](const NextTask& next) { return std::tuple(next.at.lane.value, next.at.core); });
  places_ = 0;
  rank_.moveTo(trace);
  const size_t first = trace.spans.size();
  for (SpanRing& ring : workers_) ring.moveTo(trace);
  const TraceClock::Anchor end = clock_.anchor();
  for (size_t i = first; i < trace.spans.size(); ++i) {
    trace.spans[i].begin = toNanoseconds(trace.spans[i].begin, begin_, end);
    trace.spans[i].end = toNanoseconds(trace.spans[i].end, begin_, end);
  }
  begin_ = end;
  return trace;
}

TraceSpan WorkerTrace::makeSpan(const Task& task, int core) const {
  TraceSpan span;
  span.worker = worker_;
  span.entry = step_.entry;
  span.lane = step_.plan->at(task.family).lane;
  span.core = step_.program().at(span.lane).firstCore + core;
  span.family = task.family;
  span.slot = task.slot;
  span.tile = task.tile;
  return span;
}

void WorkerTrace::recordIdle(SpanKind kind, int64_t begin, int64_t end) {
  TraceSpan span;
  span.begin = begin;
  span.end = end;
  span.kind = kind;
  span.worker = worker_;
  span.entry = step_.entry;
  ring_->add(span);
}

void WorkerTrace::recordBegin(const Task& task, int core, int missing) {
  taskBegin_ = clock_->ticks();
  recordWait(SpanKind::kWait, task, core, missing, taskBegin_);
}

void WorkerTrace::recordWait(SpanKind kind, const Task& task, int core, int missing, int64_t end) {
  const int64_t begin = std::exchange(waitBegin_, 0);
  const std::vector<EventId>& waits = step_.program().at(task.family).waits;
  if (begin == 0 || static_cast<size_t>(missing) >= waits.size()) return;
  TraceSpan span = makeSpan(task, core);
  span.kind = kind;
  span.begin = begin;
  span.end = end;
  span.event = waits[missing];
  span.index = eventIndex(*step_.tables, step_.plan->at(task.family).space, task.slot,
                          step_.program().at(span.event).space);
  ring_->add(span);
}

void WorkerTrace::recordEnd(const Task& task, int core) {
  TraceSpan span = makeSpan(task, core);
  span.begin = taskBegin_;
  span.end = clock_->ticks();
  span.rows = findRows(step_, task).rows;
  ring_->add(span);
}

}  // namespace sluice
