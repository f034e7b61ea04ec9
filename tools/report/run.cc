#include "tools/report/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>
#include <utility>

#include "runtime/program/space_table.h"
#include "tools/trace/read_trace.h"
#include "tools/trace/steps.h"

namespace sluice::tools {

namespace {

constexpr size_t kMaxCounts = 1 << 18;  // cells of a heat map

using Interval = std::pair<int64_t, int64_t>;

int64_t lengthOfUnion(std::vector<Interval> intervals) {
  std::ranges::sort(intervals);
  int64_t length = 0, end = INT64_MIN;
  for (const auto& [first, last] : intervals) {
    length += std::max<int64_t>(0, last - std::max(first, end));
    end = std::max(end, last);
  }
  return length;
}

class Analysis {
 public:
  explicit Analysis(const ReportSource& source)
      : source_(source), program_(source.program.tables()), plan_(Plan::make(source.program.verified())) {}

  Run make() {
    start();
    const Status linked = forSteps(plan_, source_.ranks,
                                   [&](const TracedStep& step, const AllSteps& all, const StepSpans& spans) {
                                     addTasks(all, spans);
                                     if (program_.at(step.entry).routes()) addRouted(step.entry, all);
                                     for (const WaitEnd& end : matchWaitEnds(all, source_.ranks, spans))
                                       run_.spans[runSpanIndex(end.waitRank, end.waitSpan)].cause =
                                           static_cast<int64_t>(runSpanIndex(end.rank, end.span));
                                     if (step.failed) return;  // its times show only the time limit
                                     addOverlap(step, spans);
                                     markCriticalPath(step, spans);
                                   });
    if (!linked) {
      start();  // without what earlier steps have added
      run_.gaps = linked.error().message;
    }
    return std::move(run_);
  }

 private:
  void start() {
    run_ = {};
    places_.clear();
    collect();
    sumUp();
  }

  void collect() {
    std::map<std::pair<size_t, int32_t>, size_t> tracks;  // the steps of a rank, -1, become its last track
    std::map<std::tuple<size_t, uint32_t, int32_t>, size_t> lanes;
    const auto last = [](int32_t worker) { return worker < 0 ? INT32_MAX : worker; };
    for (size_t rank = 0; rank < source_.ranks.size(); ++rank)
      for (const TraceSpan& span : source_.ranks[rank].spans) {
        tracks[{rank, last(span.worker)}] = 0;
        if (span.lane) lanes[{rank, span.lane.value, span.core}] = 0;
        run_.workers = std::max(run_.workers, span.worker + 1);
      }
    for (auto& [key, number] : tracks) {
      number = run_.tracks.size();
      run_.tracks.push_back({key.first, key.second == INT32_MAX ? -1 : key.second, {}});
    }
    for (auto& [key, number] : lanes) {
      number = run_.lanes.size();
      run_.lanes.push_back({std::get<0>(key), LaneId{std::get<1>(key)}, std::get<2>(key)});
    }
    for (size_t rank = 0; rank < source_.ranks.size(); ++rank)
      for (const TraceSpan& span : source_.ranks[rank].spans)
        run_.spans.push_back({&span, tracks.at({rank, last(span.worker)}),
                              span.lane ? lanes.at({rank, span.lane.value, span.core}) : kNoLane});
    std::ranges::stable_sort(run_.spans, [](const RunSpan& a, const RunSpan& b) {
      return std::tuple(a.track, a.span->begin, -a.span->end) <
             std::tuple(b.track, b.span->begin, -b.span->end);
    });
    for (const Trace& trace : source_.ranks) places_.emplace_back(trace.spans.size());
    for (size_t i = 0; i < run_.spans.size(); ++i) {
      const size_t rank = run_.tracks[run_.spans[i].track].rank;
      places_[rank][static_cast<size_t>(run_.spans[i].span - source_.ranks[rank].spans.data())] = i;
    }
  }

  size_t runSpanIndex(size_t rank, size_t span) const { return places_[rank][span]; }

  void sumUp() {
    run_.families.resize(program_.families.size());
    for (const RunSpan& each : run_.spans) {
      const TraceSpan& span = *each.span;
      if (span.kind != SpanKind::kTask) continue;
      FamilyTime& sum = run_.families[span.family.value];
      const TaskWork work = countWork(program_, span.family, span.tile, span.rows);
      ++sum.tasks;
      sum.time += span.end - span.begin;
      sum.longest = std::max(sum.longest, span.end - span.begin);
      sum.work.flops += work.flops;
      sum.work.bytes += work.bytes;
    }
    for (RunTrack& track : run_.tracks)
      if (track.worker >= 0) track.time = timeOfWorker(program_, source_.ranks[track.rank], track.worker);
  }

  // Whom tasks send to, and the experts of their rows.
  void addTasks(const AllSteps& all, const StepSpans& spans) {
    for (size_t rank = 0; rank < spans.size(); ++rank) {
      const Step own = all.at(static_cast<int>(rank));
      for (const size_t index : spans[rank]) {
        const TraceSpan& span = source_.ranks[rank].spans[index];
        if (span.kind != SpanKind::kTask) continue;
        RunSpan& task = run_.spans[runSpanIndex(rank, index)];
        const SpaceKind space = plan_.at(span.family).space;
        const int peer = taskPeer(own, space, span.slot);
        if (peer != own.rank) task.peer = peer;
        if (space == SpaceKind::kTokens || space == SpaceKind::kOnce) continue;
        // of sends the rank that gets them has the expert, of all else this one
        task.expert = program_.findFirstExpert(space == SpaceKind::kSends ? peer : own.rank) +
                      findRows(own, {span.family, span.slot, span.tile}).expert;
      }
    }
  }

  void addOverlap(const TracedStep& step, const StepSpans& spans) {
    std::vector<std::vector<Interval>> communicates(spans.size());
    std::vector<int64_t> computed(spans.size());
    for (size_t rank = 0; rank < spans.size(); ++rank)
      for (const size_t index : spans[rank]) {
        const RunSpan& each = run_.spans[runSpanIndex(rank, index)];
        const TraceSpan& span = *each.span;
        const Interval time(span.begin, span.end);
        if (each.peer >= 0) communicates[static_cast<size_t>(each.peer)].push_back(time);
        if (each.peer >= 0 || (span.kind == SpanKind::kWait && isArrival(program_, span.event)))
          communicates[rank].push_back(time);
        else if (span.kind == SpanKind::kTask)
          computed[rank] += span.end - span.begin;
      }
    for (size_t rank = 0; rank < spans.size(); ++rank) {
      const Trace& trace = source_.ranks[rank];
      run_.overlaps.push_back(
          {step.entry, step.number, rank, timeAfterBind(trace, trace.spans[step.runs[rank]]),
           computed[rank] / std::max(1, run_.workers), lengthOfUnion(std::move(communicates[rank]))});
    }
  }

  void addRouted(EntryId entry, const AllSteps& all) {
    if (all.tables.size() * static_cast<size_t>(program_.experts) > kMaxCounts) {
      run_.leftOut = fmt::format("rows per expert and rank: {} ranks times {} experts are more than {}",
                                 all.tables.size(), program_.experts, kMaxCounts);
      return;
    }
    RoutedRows rows{entry, {}};
    for (const RoutingTables& tables : all.tables) {
      std::vector<int64_t>& counts = rows.counts.emplace_back(static_cast<size_t>(program_.experts));
      for (const Piece& piece : tables.sends)
        counts[static_cast<size_t>(program_.findFirstExpert(piece.peer) + piece.expert)] += piece.rows;
    }
    std::erase_if(run_.routed, [&](const RoutedRows& other) { return other.entry == entry; });
    run_.routed.push_back(std::move(rows));
  }

  // Back from the task that ends last: to the task that ended the wait before it, or else to what its worker
  // did before.
  void markCriticalPath(const TracedStep& step, const StepSpans& spans) {
    int64_t at = -1, begin = INT64_MAX;
    for (size_t rank = 0; rank < spans.size(); ++rank) {
      begin = std::min(begin, source_.ranks[rank].spans[step.runs[rank]].begin);
      for (const size_t index : spans[rank]) {
        const auto place = static_cast<int64_t>(runSpanIndex(rank, index));
        if (spanAt(place).kind == SpanKind::kTask && (at < 0 || spanAt(place).end > spanAt(at).end))
          at = place;
      }
    }
    while (at >= 0 && spanAt(at).begin >= begin) {
      RunSpan& here = run_.spans[static_cast<size_t>(at)];
      if (here.isCritical) break;  // a clock that went back
      if (here.span->kind != SpanKind::kTask && here.span->kind != SpanKind::kWait) break;
      here.isCritical = true;
      at = here.cause != kNoCause ? here.cause : before(at);
    }
  }

  const TraceSpan& spanAt(int64_t place) const { return *run_.spans[static_cast<size_t>(place)].span; }

  // The span before it on its track, or -1.
  int64_t before(int64_t at) const {
    const auto place = static_cast<size_t>(at);
    return place > 0 && run_.spans[place - 1].track == run_.spans[place].track ? at - 1 : -1;
  }

  const ReportSource& source_;
  const TaskProgram& program_;
  const Plan plan_;
  Run run_;
  std::vector<std::vector<size_t>> places_;  // of the spans of each rank in Run::spans
};

// "0: moe_ffn, 2 ranks from rank 0" by lines.
std::string formatPrograms(const std::vector<TracedProgram>& traced) {
  std::string list;
  for (size_t i = 0; i < traced.size(); ++i) {
    const TracedProgram& each = traced[i];
    const std::string first = fmt::format("rank {}", each.firstRank);
    list += fmt::format(
        "\n  {}: {}, {}", i, each.program.tables().name,
        each.ranks.size() > 1 ? fmt::format("{} ranks from {}", each.ranks.size(), first) : first);
  }
  return list;
}

// The place of a choice among the programs; their number if it is not there.
Expected<size_t> findChoice(const std::string& choice, const std::vector<TracedProgram>& traced) {
  size_t number = 0;
  if (const auto [end, failed] = std::from_chars(choice.data(), choice.data() + choice.size(), number);
      failed == std::errc() && end == choice.data() + choice.size())
    return std::min(number, traced.size());
  const Expected<Program> program = Program::load(choice);
  if (!program) return program.error();
  const auto found =
      std::ranges::find(traced, program->verified().fingerprint(),
                        [](const TracedProgram& each) { return each.program.verified().fingerprint(); });
  return static_cast<size_t>(found - traced.begin());
}

}  // namespace

double Overlap::efficiency() const {
  return time > 0 ? static_cast<double>(std::max(compute, communication)) / static_cast<double>(time) : 0;
}

Run analyseRun(const ReportSource& source) { return Analysis(source).make(); }

Expected<ReportSource> readSource(const std::string& path, const std::vector<std::string>& choices) {
  if (!isTrace(path)) {
    Expected<Program> program = Program::load(path);
    if (!program) return program.error();
    return ReportSource{path, std::move(*program), 0, {}};
  }
  Expected<std::vector<TracedProgram>> traced = readTrace(path);
  if (!traced) return traced.error();
  if (choices.empty() && traced->size() > 1)
    return Error{fmt::format("{}: found {} programs, expected the number of one with --program:{}", path,
                             traced->size(), formatPrograms(*traced))};
  size_t place = choices.empty() ? 0 : traced->size();
  for (size_t i = 0; i < choices.size() && place == traced->size(); ++i) {
    const Expected<size_t> found = findChoice(choices[i], *traced);
    if (!found) return found.error();
    place = *found;
  }
  if (place == traced->size())
    return Error{fmt::format("{}: --program: found {}, expected one of:{}", path, fmt::join(choices, ", "),
                             formatPrograms(*traced))};
  TracedProgram& one = (*traced)[place];
  bool anySpan = false;
  for (const Trace& trace : one.ranks) anySpan = anySpan || !trace.spans.empty();
  if (!anySpan)
    return Error{fmt::format("{}: found no span of program '{}'", path, one.program.tables().name)};
  return ReportSource{path, std::move(one.program), one.firstRank, std::move(one.ranks)};
}

}  // namespace sluice::tools
