// Trace files read back, their steps bound again, and the task that ended each wait, for simulated steps.
#include "tools/trace/steps.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/base/scratch_folder.h"
#include "tests/runtime/sim/sim_run.h"
#include "tests/testing/moe_program.h"
#include "tools/cli/files.h"
#include "tools/explain/task_links.h"
#include "tools/simulate/steps.h"
#include "tools/trace/read_trace.h"

namespace sluice::tools {
namespace {

using Catch::Matchers::Contains;

constexpr int kRanks = 2;

Rates slowRates() {
  Rates rates = freeRates();
  rates.task = 1e-6;
  rates.link = {1e9, 5e-6};
  return rates;
}

// Forward and backward, as their ranks recorded them.
std::vector<Trace> recorded(const Plan& plan) {
  std::vector<SimResult> results;
  for (const EntryId entry : {EntryId{0}, EntryId{1}})
    results.push_back(simulate(plan, entry, raggedRouting(kRanks), slowRates(), {2, true}));
  return collectTraces(results);
}

Plan layerPlan() {
  return planOf(buildMoeProgram({.ranks = kRanks, .experts = 4, .topK = 2, .maxTokens = 64}));
}

Expected<std::vector<TracedProgram>> readText(const std::string& text) {
  const Expected<ScratchFolder> folder = ScratchFolder::create("steps-test");
  REQUIRE(folder);
  REQUIRE(writeText(folder->path() + "/trace.json", text));
  return readTrace(folder->path() + "/trace.json");
}

TEST_CASE("a trace file is read back as it was: program, spans and routings") {
  const Plan plan = layerPlan();
  const std::vector<Trace> ranks = recorded(plan);
  const Expected<std::vector<TracedProgram>> read = readText(chromeTrace(plan.program(), ranks));
  INFO((read ? "" : read.error().message));
  REQUIRE(read);
  REQUIRE(read->size() == 1);
  CHECK(read->front().program.tables() == plan.program());
  REQUIRE(read->front().ranks.size() == kRanks);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    const Trace& back = read->front().ranks[rank];
    CHECK(back.routings == ranks[rank].routings);
    REQUIRE(back.spans.size() == ranks[rank].spans.size());
    for (size_t s = 0; s < back.spans.size(); ++s) {
      const TraceSpan &found = back.spans[s], &wrote = ranks[rank].spans[s];
      CHECK(found.begin == wrote.begin);
      CHECK(found.end == wrote.end);
      CHECK(found.kind == wrote.kind);
      CHECK(found.worker == wrote.worker);
      CHECK(found.entry == wrote.entry);
      CHECK(found.lane == wrote.lane);
      CHECK(found.core == wrote.core);
      CHECK(found.family == wrote.family);
      CHECK(found.slot == wrote.slot);
      CHECK(found.tile == wrote.tile);
      CHECK(found.rows == (wrote.kind == SpanKind::kTask ? wrote.rows : 0));
      CHECK(found.event == wrote.event);
      CHECK(found.index == wrote.index);
    }
  }
}

TEST_CASE("several programs in one file stay apart") {
  const Plan plan = layerPlan(), other = planOf(buildMoeProgram({.ranks = kRanks, .hidden = 48}));
  std::vector<Trace> ranks = recorded(plan);
  const auto read =
      readText(chromeTrace({{&plan.program(), 0, ranks}, {&other.program(), 1, {recorded(other)[1]}}}));
  REQUIRE(read);
  REQUIRE(read->size() == 2);
  CHECK((*read)[0].ranks.size() == 2);
  CHECK((*read)[1].program.tables() == other.program());
  CHECK((*read)[1].firstRank == 1);
  CHECK((*read)[1].ranks.size() == 1);
}

TEST_CASE("the places of a run make its tables again") {
  const Plan plan = layerPlan();
  const std::vector<Trace> ranks = recorded(plan);
  const auto steps = findSteps(plan.program(), ranks);
  REQUIRE(steps);
  REQUIRE(steps->size() == 2);
  CHECK((*steps)[0].entry == EntryId{0});
  CHECK((*steps)[1].entry == EntryId{1});
  const auto ids = bindIds(plan, raggedRouting(kRanks));
  REQUIRE(ids);
  for (const TracedStep& step : *steps) {
    const auto routing = findRouting(plan.program(), ranks, step);
    REQUIRE(routing);
    const auto bound = bindAll(plan, plan.at(step.entry).routing, *routing);
    REQUIRE(bound);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      const RoutingTables &again = bound->of(plan, step.entry)[rank], &was = ids->of(plan, step.entry)[rank];
      CHECK(again.pairOf == was.pairOf);
      CHECK(again.positionOf == was.positionOf);
      CHECK(again.expertRow == was.expertRow);
      CHECK(again.sends.size() == was.sends.size());
    }
  }
}

TEST_CASE("every wait is ended by the last task that adds to its event") {
  const Plan plan = layerPlan();
  const std::vector<Trace> ranks = recorded(plan);
  const auto ends = findWaitEnds(plan, ranks);
  INFO((ends ? "" : ends.error().message));
  REQUIRE(ends);
  std::vector<std::pair<size_t, size_t>> ended;
  const auto bound = bindIds(plan, raggedRouting(kRanks));
  REQUIRE(bound);
  int fromOther = 0;
  for (const WaitEnd& end : *ends) {
    const TraceSpan &task = ranks[end.rank].spans[end.span], &wait = ranks[end.waitRank].spans[end.waitSpan];
    CHECK(task.kind == SpanKind::kTask);
    CHECK(task.entry == wait.entry);
    CHECK(task.end <= wait.end);
    fromOther += end.rank != end.waitRank;
    const AllSteps steps{plan, wait.entry, bound->of(plan, wait.entry)};
    const EventAt event{static_cast<int>(end.waitRank), wait.event, wait.index};
    bool adds = false;
    for (const SlotTasks& each : listProducers(steps, event)) {
      const auto isOne = [&](size_t rank, const TraceSpan& span) {
        return span.kind == SpanKind::kTask && static_cast<int>(rank) == each.rank &&
               span.family == each.family && span.slot == each.slot;
      };
      adds = adds || isOne(end.rank, task);
      for (const TraceSpan& span : ranks[static_cast<size_t>(each.rank)].spans)
        if (isOne(static_cast<size_t>(each.rank), span)) CHECK(span.end <= task.end);
    }
    CHECK(adds);
    ended.emplace_back(end.waitRank, end.waitSpan);
  }
  CHECK(fromOther > 0);
  std::ranges::sort(ended);
  CHECK(std::ranges::adjacent_find(ended) == ended.end());
  size_t waits = 0;
  for (const Trace& trace : ranks)
    waits += std::ranges::count(trace.spans, SpanKind::kWait, &TraceSpan::kind);
  CHECK(ended.size() == waits);
}

TEST_CASE("a wait that goes on after the last task of its rank was ended by another rank") {
  const Plan plan = layerPlan();
  std::vector<Trace> ranks = recorded(plan);
  const auto before = findWaitEnds(plan, ranks);
  REQUIRE(before);
  const auto bound = bindIds(plan, raggedRouting(kRanks));
  REQUIRE(bound);
  const auto found = std::ranges::find_if(*before, [&](const WaitEnd& end) {
    return plan.program().at(ranks[end.waitRank].spans[end.waitSpan].event).name == "returned";
  });
  REQUIRE(found != before->end());
  REQUIRE(found->rank != found->waitRank);
  TraceSpan& wait = ranks[found->waitRank].spans[found->waitSpan];
  const auto cause = [&] {
    const auto ends = findWaitEnds(plan, ranks);
    REQUIRE(ends);
    return (*ends)[static_cast<size_t>(found - before->begin())].rank;
  };
  // a task of the rank that waits becomes the last that adds to the event
  const AllSteps steps{plan, wait.entry, bound->of(plan, wait.entry)};
  for (const SlotTasks& each :
       listProducers(steps, {static_cast<int>(found->waitRank), wait.event, wait.index}))
    for (TraceSpan& span : ranks[found->waitRank].spans)
      if (static_cast<size_t>(each.rank) == found->waitRank && span.kind == SpanKind::kTask &&
          span.family == each.family && span.slot == each.slot)
        span.end = wait.end;
  CHECK(cause() == found->waitRank);
  wait.end += 1'000'000;
  CHECK(cause() == found->rank);
}

TEST_CASE("without all of a step nothing is claimed about its waits") {
  const Plan plan = layerPlan();
  const auto refusal = [&](const auto& damage) {
    std::vector<Trace> ranks = recorded(plan);
    damage(ranks);
    const auto ends = findWaitEnds(plan, ranks);
    REQUIRE_FALSE(ends);
    return ends.error().message;
  };
  CHECK_THAT(refusal([](auto& ranks) { ranks.pop_back(); }), Contains("traces of 1 ranks, expected 2"));
  CHECK_THAT(refusal([](auto& ranks) { ranks[1].dropped = 3; }), Contains("rank 1: found 3 dropped spans"));
  CHECK_THAT(refusal([](auto& ranks) { ranks[1].spans.erase(ranks[1].spans.begin()); }),
             Contains("found step 1, a run of entry 'forward', at 1 ranks, expected 2"));
  CHECK_THAT(refusal([](auto& ranks) { ranks[0].spans[0].index = -1; }), Contains("found no routing"));
  CHECK_THAT(refusal([](auto& ranks) {
               for (TraceSpan& span : ranks[0].spans)
                 if (span.kind == SpanKind::kTask) span.slot = 1 << 20;
             }),
             Contains("found task") && Contains("expected slots below"));
}

}  // namespace
}  // namespace sluice::tools
