// Who waits for whom in a run that failed: from each task that was next on its core to those that owed what
// it waited for.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "runtime/exec/plan.h"
#include "runtime/program/text_names.h"
#include "runtime/program/words.h"
#include "tools/report/run.h"

namespace sluice::tools {
namespace {

class HangGraph {
 public:
  explicit HangGraph(const ReportSource& source)
      : source_(source), program_(source.program.tables()), plan_(Plan::make(source.program.verified())) {}

  Hang make() {
    Hang hang;
    std::set<std::string> messages;
    for (size_t i = 0; i < source_.ranks.size(); ++i) {
      const FailedRun& failed = source_.ranks[i].failed;
      if (!source_.ranks[i].hasFailed()) continue;
      messages.insert(failed.message);
      const int rank = source_.firstRank + static_cast<int>(i);
      if (failed.next.empty()) addBind(rank, failed);
      for (const NextTask& next : failed.next)
        if (next.event) addTask(rank, failed, next);
    }
    hang.messages.assign(messages.begin(), messages.end());
    hang.leftOut = edges_.size() - std::min(edges_.size(), kMaxEdges);
    hang.edges = missingFirst();
    return hang;
  }

 private:
  // The trace of a rank; null: it is not here.
  const Trace* findTrace(int rank) const {
    const auto at = static_cast<size_t>(rank - source_.firstRank);
    if (rank < source_.firstRank || at >= source_.ranks.size()) return nullptr;
    const Trace& trace = source_.ranks[at];
    return trace.isThere() ? &trace : nullptr;
  }

  void add(const std::string& from, const std::string& to, const std::string& label, bool missing) {
    if (known_.emplace(from, to, label).second) edges_.push_back({from, to, label, missing});
  }

  // Tasks of a family that wait for the same are one node, named after the first of them.
  std::string taskNodeName(int rank, const NextTask& next) const {
    const auto wait = [](const NextTask& task) { return std::tuple(task.family, task.event, task.index); };
    const NextTask* first = nullptr;
    int64_t more = -1;
    for (const NextTask& other : findTrace(rank)->failed.next) {
      if (wait(other) != wait(next)) continue;
      if (!first) first = &other;
      ++more;
    }
    return fmt::format("rank {}, {}{}: {}[{},{}]", rank,
                       text::coreName(program_.at(first->at.lane).core, first->at.core),
                       more > 0 ? fmt::format(" and {} more", more) : "", program_.at(first->family).name,
                       first->slot, first->tile);
  }
  static std::string beforeTasks(int rank) { return fmt::format("rank {}: before its tasks", rank); }

  void addTask(int rank, const FailedRun& failed, const NextTask& next) {
    const EventArray& event = program_.at(next.event);
    const std::string from = taskNodeName(rank, next);
    const std::string label = fmt::format("{}[{}]: {} of {} {}", event.name, next.index, next.have, next.need,
                                          event.unit == EventUnit::kRows ? "rows" : "tasks");
    for (const int32_t owing : next.ranks) addOwing(owing, failed, next, from, label);
    bool isOwed = !next.ranks.empty();
    for (const NextTask& other : failed.next) {
      if (std::ranges::find(next.cores, other.at) == next.cores.end()) continue;
      add(from, taskNodeName(rank, other), label, false);
      isOwed = true;
    }
    if (!isOwed) add(from, fmt::format("rank {}: a signal was lost", rank), label, true);
  }

  // `owing` has not sent everything for the event, as far as the waiting rank knows.
  void addOwing(int owing, const FailedRun& failed, const NextTask& next, const std::string& from,
                const std::string& label) {
    const auto missing = [&](std::string_view what) {
      add(from, fmt::format("rank {}: {}", owing, what), label, true);
    };
    const Trace* const trace = findTrace(owing);
    if (!trace) return missing("no trace");
    if (!trace->hasFailed() || trace->failed.step != failed.step)
      return missing(hasRun(*trace, failed.step) ? "has ended this step" : "is not in this step");
    if (trace->failed.next.empty()) return add(from, beforeTasks(owing), label, false);
    bool isFound = false;
    for (const NextTask& other : trace->failed.next) {
      if (!hasSender(other.at.lane, next.event)) continue;
      add(from, taskNodeName(owing, other), label, other.event.none());
      isFound = true;
    }
    if (!isFound) missing("has sent everything");
  }

  // The rank waits for the counts of all others, and does not say whose are there.
  void addBind(int rank, const FailedRun& failed) {
    std::vector<int> past;  // these know the counts of all ranks, so they have sent their own
    bool isExplained = false;
    for (int other = 0; other < program_.mesh.peers(); ++other) {
      if (other == rank) continue;
      const Trace* const trace = findTrace(other);
      if (trace && trace->hasFailed() && trace->failed.step == failed.step) {
        if (!trace->failed.next.empty()) past.push_back(other);
        continue;
      }
      isExplained = true;
      if (!trace)
        addCounts(rank, other, "no trace");
      else if (!trace->hasFailed())
        addCounts(rank, other, hasRun(*trace, failed.step) ? "has ended this step" : "is not in this step");
      else if (trace->failed.step > failed.step)
        addCounts(rank, other, "is in a later step");
      else
        addEarlier(rank, other, trace->failed);
    }
    if (isExplained) return;
    for (const int other : past) addCounts(rank, other, "has sent them");
  }

  void addCounts(int rank, int other, std::string_view what) {
    add(beforeTasks(rank), fmt::format("rank {}: {}", other, what), "its counts", true);
  }

  // `other` is still in a step before the one in which `rank` waits for it.
  void addEarlier(int rank, int other, const FailedRun& failed) {
    const std::string label = fmt::format("its counts; it is in step {}", failed.step);
    if (failed.next.empty()) add(beforeTasks(rank), beforeTasks(other), label, false);
    for (const NextTask& next : failed.next) add(beforeTasks(rank), taskNodeName(other, next), label, false);
  }

  static bool hasRun(const Trace& trace, int64_t step) {
    return std::ranges::any_of(
        trace.spans, [&](const TraceSpan& span) { return span.kind == SpanKind::kRun && span.slot == step; });
  }

  // Whether a family of the lane adds to the event.
  bool hasSender(LaneId lane, EventId event) const {
    const auto& families = plan_.at(program_.at(event).entry).families;
    return std::ranges::any_of(families, [&](FamilyId id) {
      const auto& signals = program_.at(id).signals;
      return plan_.at(id).lane == lane && std::ranges::find(signals, event) != signals.end();
    });
  }

  // Back from what is missing, then all others; at most kMaxEdges.
  std::vector<HangEdge> missingFirst() {
    std::vector<HangEdge> found;
    std::set<std::string> reached;
    std::vector<bool> taken(edges_.size());
    const auto take = [&](const auto& fits) {
      bool any = false;
      for (size_t e = 0; e < edges_.size() && found.size() < kMaxEdges; ++e) {
        if (taken[e] || !fits(edges_[e])) continue;
        taken[e] = any = true;
        reached.insert(edges_[e].from);
        found.push_back(edges_[e]);
      }
      return any;
    };
    take([](const HangEdge& edge) { return edge.missing; });
    while (take([&](const HangEdge& edge) { return reached.contains(edge.to); })) {
    }
    take([](const HangEdge&) { return true; });
    return found;
  }

  const ReportSource& source_;
  const TaskProgram& program_;
  const Plan plan_;
  std::vector<HangEdge> edges_;
  std::set<std::tuple<std::string, std::string, std::string>> known_;
};

}  // namespace

std::optional<Hang> findHang(const ReportSource& source) {
  if (std::ranges::none_of(source.ranks, &Trace::hasFailed)) return std::nullopt;
  return HangGraph(source).make();
}

}  // namespace sluice::tools
