// Traces of real runs: every task occurs once, spans of one track do not overlap, waits come before tasks.
#include "runtime/exec/trace.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <tuple>

#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

struct Traced {
  std::vector<Trace> ranks;
  std::vector<int64_t> tasks;  // as counted by the last run of each rank
};

// Runs forward `runs` times and returns the recorded traces.
Traced traceForward(const Program& program, const ContextOptions& options, size_t most, int runs = 1) {
  const size_t ranks = static_cast<size_t>(program.ranks());
  LayerData data = makeLayerData(program.tables(), {.tokens = {.ragged = true, .most = 60}, .seed = 4});
  Traced traced{std::vector<Trace>(ranks), std::vector<int64_t>(ranks)};
  const auto results = runRanks(program, options, [&](int rank, Context& context) -> Status {
    if (Status bound = bindAll(data, rank, context); !bound) return bound;
    context.startTrace(most);
    for (int run = 0; run < runs; ++run)
      if (Status ran = context.run("forward"); !ran) return ran;
    traced.ranks[static_cast<size_t>(rank)] = context.takeTrace();
    traced.tasks[static_cast<size_t>(rank)] = context.lastRun().tasks;
    return {};
  });
  for (const Status& result : results) REQUIRE(result.ok());
  return traced;
}

std::vector<TraceSpan> ofKind(const Trace& trace, SpanKind kind) {
  std::vector<TraceSpan> spans;
  for (const TraceSpan& span : trace.spans)
    if (span.kind == kind) spans.push_back(span);
  return spans;
}

// Tolerance in ns, because workers and the rank read different clocks.
constexpr int64_t kClocks = 20'000;
constexpr size_t kMany = size_t{1} << 20;
constexpr MoeShape kShape{.ranks = 2, .experts = 4, .topK = 2, .maxTokens = 90, .cores = 3};

TEST_CASE("a trace has every task of the run once") {
  const Program program = programOf(buildMoeProgram(kShape));
  for (const ContextOptions& options :
       {ContextOptions{.threads = 1}, {.threads = 2}, {.threads = 3}, {.executor = ExecutorKind::kSerial}}) {
    const Traced traced = traceForward(program, options, kMany);
    for (size_t rank = 0; rank < 2; ++rank) {
      const auto tasks = ofKind(traced.ranks[rank], SpanKind::kTask);
      std::set<std::tuple<uint32_t, int64_t, int32_t>> seen;
      for (const TraceSpan& task : tasks) seen.emplace(task.family.value, task.slot, task.tile);
      CHECK(seen.size() == tasks.size());
      CHECK(static_cast<int64_t>(tasks.size()) == traced.tasks[rank]);
      CHECK(traced.ranks[rank].dropped == 0);
    }
  }
}

TEST_CASE("spans of a worker do not overlap, and fill its run") {
  const Program program = programOf(buildMoeProgram(kShape));
  const Traced traced = traceForward(program, {.threads = 2}, kMany, 3);
  for (const Trace& trace : traced.ranks) {
    const auto runs = ofKind(trace, SpanKind::kRun);
    REQUIRE(runs.size() == 3);
    for (int worker = 0; worker < 2; ++worker) {
      int64_t last = runs.front().begin - kClocks;
      int starts = 0, ends = 0;
      for (const TraceSpan& span : trace.spans) {
        if (span.worker != worker) continue;
        CHECK(span.begin >= last);
        CHECK(span.end >= span.begin);
        last = span.end;
        starts += span.kind == SpanKind::kStart;
        ends += span.kind == SpanKind::kEnd;
      }
      CHECK(starts == 3);
      CHECK(ends == 3);
      CHECK(last <= runs.back().end + kClocks);
    }
  }
}

TEST_CASE("a wait is followed by the task that came, and names an event of it") {
  const Program program = programOf(buildMoeProgram(kShape));
  const TaskProgram& tables = program.tables();
  const std::vector<ContextOptions> all = {{.threads = 2}, {.executor = ExecutorKind::kSerial}};
  for (const ContextOptions& options : all) {
    int waits = 0;
    // two ranks wait for each other's rows: some wait in some run
    for (int attempt = 0; attempt < 50 && waits == 0; ++attempt) {
      const Traced traced = traceForward(program, options, kMany);
      for (const Trace& trace : traced.ranks) {
        for (size_t i = 0; i < trace.spans.size(); ++i) {
          const TraceSpan& wait = trace.spans[i];
          if (wait.kind != SpanKind::kWait) continue;
          ++waits;
          REQUIRE(i + 1 < trace.spans.size());
          const TraceSpan& task = trace.spans[i + 1];
          CHECK(task.kind == SpanKind::kTask);
          CHECK(std::tie(task.family, task.slot, task.tile) == std::tie(wait.family, wait.slot, wait.tile));
          CHECK(task.begin == wait.end);
          REQUIRE(wait.event.value < tables.events.size());
          const std::vector<EventId>& events = tables.at(wait.family).waits;
          CHECK(std::find(events.begin(), events.end(), wait.event) != events.end());
        }
      }
    }
    CHECK(waits > 0);
  }
}

TEST_CASE("a run holds its bind, and that its exchange") {
  const Traced traced = traceForward(programOf(buildMoeProgram(kShape)), {.threads = 1}, kMany);
  for (const Trace& trace : traced.ranks) {
    const auto run = ofKind(trace, SpanKind::kRun), bind = ofKind(trace, SpanKind::kBind),
               exchange = ofKind(trace, SpanKind::kExchange);
    REQUIRE((run.size() == 1 && bind.size() == 1 && exchange.size() == 1));
    CHECK(run[0].begin == bind[0].begin);
    CHECK(bind[0].begin <= exchange[0].begin);
    CHECK(exchange[0].end <= bind[0].end);
    CHECK(bind[0].end <= run[0].end);
    for (const TraceSpan& task : ofKind(trace, SpanKind::kTask)) CHECK(task.begin >= bind[0].end - kClocks);
  }
}

TEST_CASE("tasks of a slot have its rows") {
  const Program program = programOf(buildMoeProgram({.ranks = 1, .experts = 2, .topK = 1, .maxTokens = 90}));
  const Traced traced = traceForward(program, {.threads = 1}, kMany);
  std::map<uint32_t, int64_t> rows;  // by family, of tile 0
  for (const TraceSpan& task : ofKind(traced.ranks[0], SpanKind::kTask))
    if (task.tile == 0) rows[task.family.value] += task.rows;
  // one rank, one expert per token: as many rows as tokens in every family
  REQUIRE(rows.size() > 1);
  for (const auto& [family, sum] : rows) CHECK(sum == rows.begin()->second);
}

TEST_CASE("a full recording drops its oldest spans and counts them") {
  const Program program = programOf(buildMoeProgram({.ranks = 1, .experts = 2, .topK = 1, .maxTokens = 90}));
  const Traced all = traceForward(program, {.threads = 1}, kMany, 2);
  const Traced some = traceForward(program, {.threads = 1}, 10, 2);
  const auto ofWorker = [](const Trace& trace) {
    std::vector<TraceSpan> spans;
    for (const TraceSpan& span : trace.spans)
      if (span.worker == 0) spans.push_back(span);
    return spans;
  };
  const auto allSpans = ofWorker(all.ranks[0]), someSpans = ofWorker(some.ranks[0]);
  REQUIRE(someSpans.size() == 10);
  CHECK(some.ranks[0].dropped > 0);
  // the last spans: the end of the run, and before it the tasks that ran last
  CHECK(someSpans.back().kind == SpanKind::kEnd);
  CHECK(std::is_sorted(someSpans.begin(), someSpans.end(),
                       [](const TraceSpan& a, const TraceSpan& b) { return a.begin < b.begin; }));
  CHECK(someSpans[8].family == allSpans[allSpans.size() - 2].family);
  CHECK(someSpans[8].slot == allSpans[allSpans.size() - 2].slot);
}

TEST_CASE("ticks become nanoseconds on the line through two anchors") {
  const TraceClock::Anchor from{1000, 50'000}, to{4000, 51'000};
  CHECK(toNanoseconds(1000, from, to) == 50'000);
  CHECK(toNanoseconds(2500, from, to) == 50'500);
  CHECK(toNanoseconds(4000, from, to) == 51'000);
  CHECK(toNanoseconds(7, {7, 3}, {7, 3}) == 3);
  const TraceClock clock;
  const TraceClock::Anchor begin = clock.anchor();
  const int64_t middle = clock.ticks();
  const TraceClock::Anchor end = clock.anchor();
  CHECK(toNanoseconds(middle, begin, end) >= begin.nanoseconds);
  CHECK(toNanoseconds(middle, begin, end) <= end.nanoseconds);
}

TEST_CASE("a ring that grows keeps its spans in order") {
  SpanRing ring(12);
  const auto add = [&](int64_t begin) {
    TraceSpan span;
    span.begin = begin;
    ring.add(span);
  };
  ring.makeRoom(4);
  for (int64_t i = 0; i < 6; ++i) add(i);  // 0 and 1 are dropped
  ring.makeRoom(3);
  for (int64_t i = 6; i < 9; ++i) add(i);
  Trace trace;
  ring.moveTo(trace);
  std::vector<int64_t> begins;
  for (const TraceSpan& span : trace.spans) begins.push_back(span.begin);
  CHECK(begins == std::vector<int64_t>{2, 3, 4, 5, 6, 7, 8});
  CHECK(trace.dropped == 2);
  Trace empty;
  ring.moveTo(empty);
  CHECK((empty.spans.empty() && empty.dropped == 0));
}

TEST_CASE("what is not recorded leaves no spans") {
  const Program program = programOf(buildMoeProgram({.ranks = 1}));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {20}}});
  const auto results = runRanks(program, {.threads = 1}, [&](int rank, Context& context) -> Status {
    if (Status bound = bindAll(data, rank, context); !bound) return bound;
    if (Status ran = context.run("forward"); !ran) return ran;
    CHECK(context.takeTrace().spans.empty());
    context.startTrace();
    if (Status ran = context.run("forward"); !ran) return ran;
    CHECK_FALSE(context.takeTrace().spans.empty());
    CHECK(context.takeTrace().spans.empty());
    context.stopTrace();
    if (Status ran = context.run("forward"); !ran) return ran;
    CHECK(context.takeTrace().spans.empty());
    return {};
  });
  CHECK(results[0].ok());
}

}  // namespace
}  // namespace sluice
