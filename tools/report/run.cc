#include "tools/report/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "runtime/program/space_table.h"
#include "tools/trace/steps.h"

namespace sluice::tools {
namespace {

constexpr size_t kMostCounts = 1 << 18;  // cells of a heat map

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
    collect();
    const Status linked = forSteps(
        plan_, source_.ranks,
        [&](const TracedStep& step, const AllSteps& all, const auto& spans) { addStep(step, all, spans); });
    if (linked) {
      link();
      markCriticalPath();
    } else {
      run_.gaps = linked.error().message;
      run_.overlaps.clear();
      run_.routed.clear();
      for (RunSpan& span : run_.spans) span.expert = span.peer = -1;
    }
    return std::move(run_);
  }

 private:
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
      run_.tracks.push_back({key.first, key.second == INT32_MAX ? -1 : key.second});
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

  size_t placeOf(size_t rank, size_t span) const { return places_[rank][span]; }

  void addStep(const TracedStep& step, const AllSteps& all, const std::vector<std::vector<size_t>>& spans) {
    std::vector<std::vector<Interval>> sent(source_.ranks.size());
    std::vector<int64_t> computed(source_.ranks.size());
    for (size_t rank = 0; rank < spans.size(); ++rank) {
      const Step own = all.at(static_cast<int>(rank));
      for (const size_t index : spans[rank]) {
        const TraceSpan& span = source_.ranks[rank].spans[index];
        if (span.kind == SpanKind::kWait) {
          if (span.event && program_.at(span.event).remote) sent[rank].emplace_back(span.begin, span.end);
          continue;
        }
        const SpaceKind space = plan_.at(span.family).space;
        const int peer = taskPeer(own, space, span.slot);
        if (peer != static_cast<int>(rank)) {
          sent[rank].emplace_back(span.begin, span.end);
          sent[static_cast<size_t>(peer)].emplace_back(span.begin, span.end);
          run_.spans[placeOf(rank, index)].peer = peer;
        } else {
          computed[rank] += span.end - span.begin;
        }
        if (space != SpaceKind::kTokens && space != SpaceKind::kOnce)
          run_.spans[placeOf(rank, index)].expert =
              program_.firstExpertOf(isRemote(space) ? ownerOf(own, space, span.slot, rank)
                                                     : static_cast<int>(rank)) +
              rowsOf(own, {span.family, span.slot, span.tile}).expert;
      }
    }
    for (size_t rank = 0; rank < spans.size(); ++rank) {
      Overlap overlap{step.entry, stepOf_[step.entry.value], rank};
      overlap.time = timeOf(rank, step.runs[rank]);
      overlap.compute = computed[rank] / std::max(1, run_.workers);
      overlap.communication = lengthOfUnion(std::move(sent[rank]));
      run_.overlaps.push_back(overlap);
    }
    ++stepOf_[step.entry.value];
    if (program_.at(step.entry).routes()) addRouted(step.entry, all);
  }

  // The rank that has the expert of a piece: sends go there, returns come from there.
  static int ownerOf(const Step& step, SpaceKind space, int64_t slot, size_t rank) {
    return space == SpaceKind::kSends ? taskPeer(step, space, slot) : static_cast<int>(rank);
  }

  int64_t timeOf(size_t rank, size_t runIndex) const {
    const TraceSpan& run = source_.ranks[rank].spans[runIndex];
    int64_t begin = run.begin;
    for (const TraceSpan& span : source_.ranks[rank].spans)
      if (span.kind == SpanKind::kBind && span.begin >= run.begin && span.end <= run.end) begin = span.end;
    return run.end - begin;
  }

  void addRouted(EntryId entry, const AllSteps& all) {
    if (all.tables.size() * static_cast<size_t>(program_.experts) > kMostCounts) {
      run_.leftOut = fmt::format("rows per expert and rank: {} ranks times {} experts are more than {}",
                                 all.tables.size(), program_.experts, kMostCounts);
      return;
    }
    RoutedRows rows{entry, {}};
    for (const RoutingTables& tables : all.tables) {
      std::vector<int64_t>& counts = rows.counts.emplace_back(static_cast<size_t>(program_.experts));
      for (const Piece& piece : tables.sends)
        counts[static_cast<size_t>(program_.firstExpertOf(piece.peer) + piece.expert)] += piece.rows;
    }
    std::erase_if(run_.routed, [&](const RoutedRows& other) { return other.entry == entry; });
    run_.routed.push_back(std::move(rows));
  }

  void link() {
    const auto ends = findWaitEnds(plan_, source_.ranks);
    if (!ends) return;
    for (const WaitEnd& end : *ends)
      run_.spans[placeOf(end.waitRank, end.waitSpan)].cause =
          static_cast<int64_t>(placeOf(end.rank, end.span));
  }

  // Back from the task that ends last in each run of an entry: to the task that ended the wait before it, or
  // else to what its worker did before.
  void markCriticalPath() {
    for (const auto& [entry, time] : stepTimes()) {
      const auto& [begin, end] = time;
      int64_t at = -1;
      for (size_t i = 0; i < run_.spans.size(); ++i) {
        const TraceSpan& span = *run_.spans[i].span;
        if (span.kind == SpanKind::kTask && span.entry == entry && span.begin >= begin && span.begin < end &&
            (at < 0 || span.end > run_.spans[static_cast<size_t>(at)].span->end))
          at = static_cast<int64_t>(i);
      }
      while (at >= 0 && run_.spans[static_cast<size_t>(at)].span->begin >= begin) {
        RunSpan& here = run_.spans[static_cast<size_t>(at)];
        if (here.isCritical) break;  // a clock that went back
        const bool isTask = here.span->kind == SpanKind::kTask;
        if (!isTask && here.span->kind != SpanKind::kWait) break;
        here.isCritical = true;
        at = here.cause != kNoCause ? here.cause : before(at);
      }
    }
  }

  // The span before it on its track, or -1.
  int64_t before(int64_t at) const {
    const auto place = static_cast<size_t>(at);
    return place > 0 && run_.spans[place - 1].track == run_.spans[place].track ? at - 1 : -1;
  }

  // Begin and end of each run of an entry, over all ranks.
  std::vector<std::pair<EntryId, Interval>> stepTimes() const {
    std::map<std::pair<uint32_t, int64_t>, Interval> times;
    for (const Trace& trace : source_.ranks) {
      std::map<uint32_t, int64_t> number;
      for (const TraceSpan& span : trace.spans) {
        if (span.kind != SpanKind::kRun) continue;
        auto [found, isNew] =
            times.try_emplace({span.entry.value, number[span.entry.value]++}, span.begin, span.end);
        found->second.first = std::min(found->second.first, span.begin);
        found->second.second = std::max(found->second.second, span.end);
      }
    }
    std::vector<std::pair<EntryId, Interval>> all;
    for (const auto& [key, time] : times) all.emplace_back(EntryId{key.first}, time);
    return all;
  }

  const ReportSource& source_;
  const TaskProgram& program_;
  const Plan plan_;
  Run run_;
  std::vector<std::vector<size_t>> places_;  // of the spans of each rank in Run::spans
  std::map<uint32_t, int64_t> stepOf_;       // runs so far, by entry
};

}  // namespace

double Overlap::efficiency() const {
  return time > 0 ? static_cast<double>(std::max(compute, communication)) / static_cast<double>(time) : 0;
}

Run analyseRun(const ReportSource& source) { return Analysis(source).make(); }

}  // namespace sluice::tools
