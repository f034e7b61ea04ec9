#include "tools/trace/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "runtime/trace/chrome_trace.h"

namespace sluice::tools {

namespace {

// The tasks and waits of each run of a rank, by the run's span: what began in it and belongs to its entry.
std::map<size_t, std::vector<size_t>> spansOfRuns(const Trace& trace) {
  std::vector<std::pair<int64_t, size_t>> runs;  // begin, span
  for (size_t s = 0; s < trace.spans.size(); ++s)
    if (trace.spans[s].kind == SpanKind::kRun) runs.emplace_back(trace.spans[s].begin, s);
  std::ranges::sort(runs);
  std::map<size_t, std::vector<size_t>> spans;
  for (size_t s = 0; s < trace.spans.size(); ++s) {
    const TraceSpan& span = trace.spans[s];
    if (span.kind != SpanKind::kTask && span.kind != SpanKind::kWait) continue;
    const auto after = std::ranges::upper_bound(runs, std::pair(span.begin, trace.spans.size()));
    if (after == runs.begin()) continue;
    const size_t run = std::prev(after)->second;
    if (trace.spans[run].entry == span.entry) spans[run].push_back(s);
  }
  return spans;
}

Status checkSlots(const AllSteps& steps, const std::vector<Trace>& ranks, const StepSpans& spans) {
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (const size_t index : spans[rank]) {
      const TraceSpan& span = ranks[rank].spans[index];
      const int64_t slots = liveSlots(steps.tables[rank], steps.plan.at(span.family).space);
      if (span.slot >= slots)
        return Error{fmt::format("rank {}: found task {}[{},{}], expected slots below {}", rank,
                                 steps.program().at(span.family).name, span.slot, span.tile, slots)};
    }
  return {};
}

class WaitEnds {
 public:
  WaitEnds(const AllSteps& steps, const std::vector<Trace>& ranks) : steps_(steps), ranks_(ranks) {}

  void addTask(size_t rank, size_t index) {
    const TraceSpan& span = ranks_[rank].spans[index];
    for (const EventAt& at :
         listSignals(steps_, static_cast<int>(rank), {span.family, span.slot, span.tile})) {
      auto& [here, other] = last_[{at.rank, at.event.value, at.index}];
      Last& last = at.rank == static_cast<int>(rank) ? here : other;
      if (!last || span.end > last->first) last = {span.end, WaitEnd{rank, index}};
    }
  }

  // Nothing if no task added to its event. Who ended it is the last task of its rank only if the wait ended
  // with it: what another rank sends is there some time after the task that sent it.
  std::optional<WaitEnd> of(size_t rank, size_t index) const {
    const TraceSpan& span = ranks_[rank].spans[index];
    const auto found = last_.find({static_cast<int>(rank), span.event.value, span.index});
    if (found == last_.end()) return std::nullopt;
    const auto& [here, other] = found->second;
    const bool isHere = here && (!other || (here->first > other->first && span.end - here->first < kNoticed));
    WaitEnd end = isHere ? here->second : other->second;
    end.waitRank = rank;
    end.waitSpan = index;
    return end;
  }

 private:
  static constexpr int64_t kNoticed =
      100'000;  // ns, in which a worker that polls has seen a signal of its rank
  using Last = std::optional<std::pair<int64_t, WaitEnd>>;  // end of the task, and it

  const AllSteps& steps_;
  const std::vector<Trace>& ranks_;
  // By rank, event and index: of that rank, and of all others.
  std::map<std::tuple<int, uint32_t, int64_t>, std::pair<Last, Last>> last_;
};

}  // namespace

bool hasFailed(const std::vector<Trace>& ranks) { return std::ranges::any_of(ranks, &Trace::hasFailed); }

Expected<std::vector<TracedStep>> findSteps(const TaskProgram& program, const std::vector<Trace>& ranks) {
  if (std::ssize(ranks) != program.mesh.peers())
    return Error{fmt::format("found traces of {} ranks, expected {}", ranks.size(), program.mesh.peers())};
  const bool failed = hasFailed(ranks);
  std::map<int64_t, TracedStep> steps;  // by their numbers in the workspace
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].spans.empty())
      return Error{fmt::format("rank {}: found no trace, expected that of every rank", rank)};
    if (ranks[rank].dropped != 0)
      return Error{fmt::format("rank {}: found {} dropped spans, expected 0", rank, ranks[rank].dropped)};
    for (size_t s = 0; s < ranks[rank].spans.size(); ++s) {
      const TraceSpan& span = ranks[rank].spans[s];
      if (span.kind != SpanKind::kRun) continue;
      TracedStep& step = steps[span.slot];
      if (step.runs.empty()) step = {span.entry, 0, false, std::vector<size_t>(ranks.size(), SIZE_MAX)};
      if (step.entry != span.entry || step.runs[rank] != SIZE_MAX)
        return Error{fmt::format(
            "rank {}: found entry '{}' in step {}, expected {}", rank, program.at(span.entry).name, span.slot,
            step.entry != span.entry ? "'" + program.at(step.entry).name + "'" : "one run of it")};
      step.runs[rank] = s;
      step.failed = step.failed || (ranks[rank].hasFailed() && ranks[rank].failed.step == span.slot);
    }
  }
  std::vector<TracedStep> inOrder;
  std::map<uint32_t, int64_t> count;  // by entry
  for (auto& [number, step] : steps) {
    const auto found = std::ssize(ranks) - std::ranges::count(step.runs, SIZE_MAX);
    // after a failure some ranks may be a step ahead
    if (found != std::ssize(ranks) && failed) continue;
    if (found != std::ssize(ranks))
      return Error{fmt::format("found step {}, a run of entry '{}', at {} ranks, expected {}", number,
                               program.at(step.entry).name, found, ranks.size())};
    step.number = count[step.entry.value]++;
    inOrder.push_back(std::move(step));
  }
  return inOrder;
}

Expected<std::vector<RankRouting>> findRouting(const TaskProgram& program, const std::vector<Trace>& ranks,
                                               const TracedStep& step) {
  std::vector<RankRouting> all;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const int64_t index = ranks[rank].spans[step.runs[rank]].index;
    if (index < 0)
      return Error{
          fmt::format("found no routing of a run of entry '{}' at rank {}: the trace had no room for it",
                      program.at(step.entry).name, rank)};
    const TracedRouting& routing = ranks[rank].routings[static_cast<size_t>(index)];
    all.push_back({routing.tokens, routing.places, {}, true});
  }
  return all;
}

int64_t timeAfterBind(const Trace& trace, const TraceSpan& run) {
  int64_t begin = run.begin;
  for (const TraceSpan& span : trace.spans) {
    if (span.worker >= 0) break;  // the rank's own are first
    if (span.kind == SpanKind::kBind && span.begin >= run.begin && span.end <= run.end) begin = span.end;
  }
  return run.end - begin;
}

Status forSteps(const Plan& plan, const std::vector<Trace>& ranks, const UseStep& use) {
  const Expected<std::vector<TracedStep>> steps = findSteps(plan.program(), ranks);
  if (!steps) return steps.error();
  std::vector<std::map<size_t, std::vector<size_t>>> runs;
  for (const Trace& trace : ranks) runs.push_back(spansOfRuns(trace));
  for (const TracedStep& step : *steps) {
    const Expected<std::vector<RankRouting>> routing = findRouting(plan.program(), ranks, step);
    if (!routing) return routing.error();
    const Expected<BoundRouting> bound = bindAll(plan, plan.at(step.entry).routing, *routing);
    if (!bound) return bound.error();
    const AllSteps all{plan, step.entry, bound->of(plan, step.entry)};
    StepSpans spans;
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      spans.push_back(std::move(runs[rank][step.runs[rank]]));
    if (Status legal = checkSlots(all, ranks, spans); !legal) return legal;
    use(step, all, spans);
  }
  return {};
}

std::vector<WaitEnd> matchWaitEnds(const AllSteps& steps, const std::vector<Trace>& ranks,
                                   const StepSpans& spans) {
  WaitEnds found(steps, ranks);
  const auto ofKind = [&](SpanKind kind, const auto& use) {
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      for (const size_t span : spans[rank])
        if (ranks[rank].spans[span].kind == kind) use(rank, span);
  };
  std::vector<WaitEnd> ends;
  ofKind(SpanKind::kTask, [&](size_t rank, size_t span) { found.addTask(rank, span); });
  ofKind(SpanKind::kWait, [&](size_t rank, size_t span) {
    if (const auto end = found.of(rank, span)) ends.push_back(*end);
  });
  return ends;
}

Expected<std::vector<WaitEnd>> findWaitEnds(const Plan& plan, const std::vector<Trace>& ranks) {
  std::vector<WaitEnd> ends;
  const Status done =
      forSteps(plan, ranks, [&](const TracedStep&, const AllSteps& steps, const StepSpans& spans) {
        for (const WaitEnd& end : matchWaitEnds(steps, ranks, spans)) ends.push_back(end);
      });
  if (!done) return done.error();
  return ends;
}

std::string chromeTraceWithArrows(const Plan& plan, const std::vector<Trace>& ranks) {
  const Expected<std::vector<WaitEnd>> ends = findWaitEnds(plan, ranks);
  return chromeTrace({{&plan.program(), 0, ranks, ends ? *ends : std::vector<WaitEnd>()}});
}

WorkerTime timeOfWorker(const TaskProgram& program, const Trace& trace, int32_t worker) {
  WorkerTime time;
  const TraceSpan* last = nullptr;
  for (const TraceSpan& span : std::ranges::equal_range(trace.spans, worker, {}, &TraceSpan::worker)) {
    const int64_t length = span.end - span.begin;
    // the time between two runs belongs to neither
    if (last && span.kind != SpanKind::kStart) time.overhead += span.begin - last->end;
    last = &span;
    if (span.kind == SpanKind::kTask) {
      time.busy += length;
      ++time.tasks;
    } else if (isWait(span.kind)) {
      (isArrival(program, span.event) ? time.arrival : time.producer) += length;
    } else {
      (span.kind == SpanKind::kStart ? time.start : time.end) += length;
    }
  }
  return time;
}

}  // namespace sluice::tools
