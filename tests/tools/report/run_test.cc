// What a report says of simulated steps, whose times are known.
#include "tools/report/run.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/runtime/sim/sim_run.h"
#include "tests/testing/moe_program.h"
#include "tools/report/report.h"
#include "tools/simulate/steps.h"
#include "tools/trace/read_trace.h"

namespace sluice::tools {
namespace {

using Catch::Matchers::Contains;

constexpr int kTwoRanks = 2;

// Rank 0 has all tokens; rows of two experts of each rank.
std::vector<TestRouting> uneven() {
  std::vector<TestRouting> ranks(kTwoRanks);
  ranks[0].tokens = 64;
  for (int t = 0; t < 64; ++t) ranks[0].ids.insert(ranks[0].ids.end(), {t % 2, 2 + t % 2});
  return ranks;
}

// Each task takes 1 us and 10 ns per element copied; a byte on the link takes 1 ns.
ReportSource simulated() {
  const Plan plan = planOf(buildMoeProgram({.ranks = kTwoRanks, .experts = 4, .topK = 2, .maxTokens = 64}));
  Rates rates = freeRates();
  rates.task = 1e-6;
  rates.link = {1e9, 5e-6};
  std::vector<SimResult> results;
  for (const EntryId entry : {EntryId{0}, EntryId{1}})
    results.push_back(simulate(plan, entry, uneven(), rates, {1, true}));
  return {"trace.json", *Program::fromTaskProgram(plan.program()), 0, collectTraces(results)};
}

TEST_CASE("spans are in the order of tracks and time, and no track of a worker overlaps") {
  const ReportSource source = simulated();
  const Run run = analyseRun(source);
  CHECK(run.gaps.empty());
  CHECK(run.workers == 1);
  REQUIRE(run.tracks.size() == 2 * kTwoRanks);
  CHECK(run.tracks[0].worker == 0);
  CHECK(run.tracks[1].worker == -1);
  size_t all = 0;
  for (const Trace& trace : source.ranks) all += trace.spans.size();
  CHECK(run.spans.size() == all);
  for (size_t i = 1; i < run.spans.size(); ++i) {
    const RunSpan &before = run.spans[i - 1], &here = run.spans[i];
    CHECK(before.track <= here.track);
    if (before.track == here.track) CHECK(before.span->end <= here.span->begin);
  }
}

TEST_CASE("the critical path leads without gaps of more than a message from the first task to the last") {
  const ReportSource source = simulated();
  const Run run = analyseRun(source);
  std::vector<const RunSpan*> path;
  for (const RunSpan& span : run.spans)
    if (span.isCritical && span.span->entry == EntryId{0} && span.span->kind == SpanKind::kTask)
      path.push_back(&span);
  std::ranges::sort(path, {}, [](const RunSpan* each) { return each->span->begin; });
  REQUIRE(path.size() > 2);
  int64_t last = 0;
  for (const Trace& trace : source.ranks)
    for (const TraceSpan& span : trace.spans)
      if (span.kind == SpanKind::kTask && span.entry == EntryId{0}) last = std::max(last, span.end);
  CHECK(path.front()->span->begin == 0);
  CHECK(path.back()->span->end == last);
  // a wait leads to the task that ended it, here at the other rank, too
  int64_t led = 0, across = 0;
  for (const RunSpan& span : run.spans) {
    if (!span.isCritical || span.cause == kNoCause) continue;
    const RunSpan& cause = run.spans[static_cast<size_t>(span.cause)];
    CHECK(cause.isCritical);
    ++led;
    across += run.tracks[cause.track].rank != run.tracks[span.track].rank;
  }
  CHECK(led > 0);
  CHECK(across > 0);
  // rows of 64 bytes and more: a slot of 16 takes some us on the link, and others may be before it
  for (size_t i = 1; i < path.size(); ++i) {
    CHECK(path[i]->span->begin >= path[i - 1]->span->end);
    CHECK(path[i]->span->begin - path[i - 1]->span->end < 40'000);
  }
}

TEST_CASE("a rank that has begun the next entry is not on the critical path of the one before") {
  ReportSource source = simulated();
  // all of backward at rank 1 half a forward earlier
  const int64_t forward = source.ranks[0].spans.front().end;
  for (TraceSpan& span : source.ranks[1].spans)
    if (span.entry == EntryId{1}) span.begin -= forward / 2, span.end -= forward / 2;
  sortSpans(source.ranks[1]);
  const Run run = analyseRun(source);
  const int64_t onPath = std::ranges::count_if(run.spans, [](const RunSpan& span) {
    return span.isCritical && span.span->entry == EntryId{0} && span.span->kind == SpanKind::kTask;
  });
  CHECK(onPath > 2);
}

TEST_CASE("overlap adds up communication once, and computation of all workers") {
  const ReportSource source = simulated();
  const Run run = analyseRun(source);
  REQUIRE(run.overlaps.size() == 2 * kTwoRanks);
  for (const Overlap& each : run.overlaps) {
    int64_t compute = 0, time = 0;
    for (const TraceSpan& span : source.ranks[each.rank].spans) {
      if (span.entry != each.entry) continue;
      if (span.kind == SpanKind::kRun) time = span.end - span.begin;
      if (span.kind == SpanKind::kTask) compute += span.end - span.begin;
    }
    CHECK(each.time == time);
    CHECK(each.compute > 0);
    CHECK(each.compute <= compute);
    CHECK(each.communication > 0);
    CHECK(each.communication <= time);
    CHECK(each.efficiency() > 0);
    CHECK(each.efficiency() <= 1);
  }
}

TEST_CASE("routed rows are those of the routing, and tasks know their experts") {
  const ReportSource source = simulated();
  const Run run = analyseRun(source);
  REQUIRE(run.routed.size() == 1);
  CHECK(run.routed[0].counts == std::vector<std::vector<int64_t>>{{32, 32, 32, 32}, {0, 0, 0, 0}});
  std::vector<int32_t> experts;
  for (const RunSpan& each : run.spans) {
    if (each.expert < 0) continue;
    const bool isOfRank0 = each.expert < 2;
    const Family& family = source.program.tables().at(each.span->family);
    if (family.name == "up_proj") CHECK(isOfRank0 == (run.tracks[each.track].rank == 0));
    experts.push_back(each.expert);
  }
  std::ranges::sort(experts);
  const auto repeated = std::ranges::unique(experts);
  experts.erase(repeated.begin(), repeated.end());
  CHECK(experts == std::vector<int32_t>{0, 1, 2, 3});
}

TEST_CASE("what cannot be linked is said, and the rest is shown") {
  ReportSource source = simulated();
  source.ranks[1].dropped = 5;
  const Run run = analyseRun(source);
  CHECK_THAT(run.gaps, Contains("5 dropped spans"));
  CHECK(run.overlaps.empty());
  CHECK(std::ranges::none_of(run.spans, &RunSpan::isCritical));
  const std::string text = reportText({source});
  CHECK_THAT(text, Contains("not shown") && Contains("5 dropped spans") && Contains("forward/up_proj"));
  CHECK_THAT(text, !Contains("Critical path"));
}

TEST_CASE("a rank alone is shown without its partners") {
  ReportSource source = simulated();
  source.ranks.erase(source.ranks.begin());
  source.firstRank = 1;
  const Run run = analyseRun(source);
  CHECK_THAT(run.gaps, Contains("traces of 1 ranks, expected 2"));
  CHECK_THAT(reportText({source}), Contains("rank 1, worker 0"));
}

TEST_CASE("a picture shows what is on its way only if it is known") {
  ReportSource source = simulated();
  const Expected<std::string> whole = reportSvg(source);
  REQUIRE(whole);
  CHECK_THAT(*whole, Contains("<title>rows</title>") && Contains("<title>results</title>") &&
                         Contains("critical path"));
  // rank 1 sends no rows and gets no results
  const size_t second = whole->find(">rank 1<");
  REQUIRE(second != whole->npos);
  CHECK_THAT(whole->substr(0, second), !Contains("<title>rows</title>"));
  source.ranks[1].dropped = 5;
  const Expected<std::string> part = reportSvg(source);
  REQUIRE(part);
  CHECK_THAT(*part, !Contains("<title>rows</title>") && Contains("5 dropped spans"));
  source.ranks.assign(12, source.ranks[0]);
  CHECK_THAT(*reportSvg(source), Contains("and 4 more ranks"));
}

}  // namespace
}  // namespace sluice::tools
