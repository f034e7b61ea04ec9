// Whatever the program and the routing: every task runs once, after the events for which it waits, in the
// order of its lane; and the same step gives the same times.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "runtime/exec/step.h"
#include "tests/runtime/sim/sim_run.h"
#include "tests/testing/linear_program.h"
#include "tests/testing/moe_program.h"
#include "tests/testing/separate_cores.h"

namespace sluice {
namespace {

using Random = std::mt19937;

int pick(Random& random, int least, int most) {
  return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
}

Rates randomRates(Random& random) {
  const auto rate = [&](double least) { return least * std::pow(10.0, pick(random, 0, 30) / 10.0); };
  Rates rates = freeRates();
  rates.matrix.gmm = {rate(1e8), 6, 5, 13};
  rates.matrix.gmmTransposed = {rate(1e8), 6, 7, 0};
  rates.matrix.weightGrad = {rate(1e8), 5, 6, 17};
  rates.matrix.rowUnit = 16;
  rates.vector = {rate(1e7), rate(1e7), rate(1e8), rate(1e8)};
  rates.memory = {rate(1e8), rate(1e8), rate(1e8), rate(1e8), 64, pick(random, 0, 1) / 1.0};
  rates.link = {rate(1e7), pick(random, 0, 3) * 1e-6};
  rates.task = pick(random, 1, 20) * 1e-7;  // so that every task takes some nanoseconds
  return rates;
}

TaskProgram randomMoe(Random& random) {
  MoeShape shape;
  shape.tp = pick(random, 0, 3) == 0 ? 2 : 1;
  shape.ranks = shape.tp * pick(random, 1, 4);
  shape.sameTokens = shape.tp > 1 && pick(random, 0, 1) == 1;
  shape.experts = pick(random, 1, 9);
  shape.topK = std::min(shape.experts, pick(random, 1, 3));
  shape.maxTokens = pick(random, 1, 90);
  shape.cores = pick(random, 1, 5);
  shape.window = pick(random, 1, 6);
  shape.groupSlots = pick(random, 0, 2) == 0 ? 2 : 0;
  shape.tileN = 8 * pick(random, 1, 3);
  shape.sumLast = pick(random, 0, 3) == 0;
  const bool separate = pick(random, 0, 2) == 0;
  shape.fused = !separate && pick(random, 0, 1) == 1;
  TaskProgram program = buildMoeProgram(shape);
  return separate ? separateCores(std::move(program), pick(random, 1, 3), 3, pick(random, 0, 2)) : program;
}

TaskProgram randomLinear(Random& random) {
  LinearShape shape;
  shape.column = pick(random, 0, 1) == 1;
  shape.ranks = pick(random, 1, 4);
  shape.sameTokens = pick(random, 0, 1) == 1;
  shape.cores = pick(random, 1, 3);
  return buildLinearProgram(shape);
}

// Ragged, empty, one-hot, or masked.
std::vector<TestRouting> randomRouting(const TaskProgram& program, Random& random) {
  const int kind = pick(random, 0, 3);
  const int32_t hot = pick(random, 0, program.experts - 1);
  std::vector<TestRouting> ranks;
  for (int32_t rank = 0; rank < program.mesh.peers(); ++rank) {
    if (program.mesh.tokens == TokenHolders::kSame && program.mesh.shardOf(rank) > 0) {
      ranks.push_back(ranks.back());
      continue;
    }
    TestRouting own;
    own.tokens = pick(random, 0, 3) == 0 ? 0 : pick(random, 0, program.maxTokens);
    for (int64_t t = 0; program.entries[0].expertIds && t < own.tokens; ++t) {
      std::set<int32_t> ids;
      for (int32_t k = 0; k < program.topK; ++k) {
        int32_t id = pick(random, 0, program.experts - 1);
        if (kind == 1) id = k == 0 ? hot : -1;
        if (kind == 2 && pick(random, 0, 1) == 0) id = -1;
        own.ids.push_back(id < 0 || ids.insert(id).second ? id : -1);
      }
    }
    ranks.push_back(std::move(own));
  }
  return ranks;
}

// A step at one rank, for what the runtime says of its tasks.
struct RankStep {
  std::vector<uint64_t> words;
  EventTable events;
  Step step;

  RankStep(const Plan& plan, EntryId entry, int rank, const RoutingTables& tables)
      : words(EventTable::bytesFor(plan, plan.program().mesh.peers()) / sizeof(uint64_t)),
        events(plan, plan.program().mesh.peers(),
               {{}, reinterpret_cast<std::byte*>(words.data()), words.size() * sizeof(uint64_t)}) {
    events.setThresholds(plan, entry, tables);
    step = {&plan, rank, nullptr, &events, &tables, entry, {}, WorkKind::kAll};
  }
};

using TaskKey = std::tuple<uint32_t, int64_t, int32_t>;
TaskKey keyOf(const TraceSpan& span) { return {span.family.value, span.slot, span.tile}; }

void checkAllOnce(const Step& step, const Trace& trace) {
  std::set<TaskKey> ran, expected;
  size_t tasks = 0;
  for (const TraceSpan& span : trace.spans)
    if (span.kind == SpanKind::kTask) {
      ran.insert(keyOf(span));
      ++tasks;
    }
  for (const FamilyId family : step.plan->at(step.entry).families)
    for (int64_t slot = 0; slot < liveSlots(*step.tables, step.plan->at(family).space); ++slot)
      for (int32_t tile = 0; tile < step.program().at(family).tiles; ++tile)
        expected.insert({family.value, slot, tile});
  CHECK(tasks == ran.size());
  CHECK(ran == expected);
}

// It holds, for every event word of every rank, when the tasks that add to it end, and how much they add.
using Deliveries = std::map<std::pair<int, size_t>, std::multimap<int64_t, uint64_t>>;

void addDeliveries(const Step& step, const Trace& trace, Deliveries& deliveries) {
  for (const TraceSpan& span : trace.spans)
    if (span.kind == SpanKind::kTask)
      forSignals(step, {span.family, span.slot, span.tile},
                 [&](int rank, size_t word, uint64_t n) { deliveries[{rank, word}].emplace(span.end, n); });
}

void checkWaits(const Step& step, const Trace& trace, const Deliveries& deliveries) {
  for (const TraceSpan& span : trace.spans) {
    if (span.kind != SpanKind::kTask) continue;
    const SpaceKind space = step.plan->at(span.family).space;
    for (const EventId wait : step.program().at(span.family).waits) {
      const int64_t index = eventIndex(*step.tables, space, span.slot, step.program().at(wait).space);
      const uint64_t need = step.events->need(wait, index);
      uint64_t have = 0;
      const auto found = deliveries.find({step.rank, step.events->word(wait, index)});
      if (found != deliveries.end())
        for (const auto& [time, n] : found->second)
          if (time <= span.begin) have += n;
      if (have < need) FAIL("a task began before its event was complete");
    }
  }
}

// A worker waits no longer than the event needs for which it waits, where tasks of its rank signal it.
int64_t checkWaitEnds(const Step& step, const Trace& trace, const Deliveries& deliveries) {
  int64_t checked = 0;
  for (const TraceSpan& span : trace.spans) {
    if (span.kind != SpanKind::kWait || step.program().at(span.event).remote) continue;
    const uint64_t need = step.events->need(span.event, span.index);
    uint64_t have = 0;
    int64_t complete = -1;
    const std::pair word(step.rank, step.events->word(span.event, span.index));
    for (const auto& [time, n] : deliveries.at(word))
      if (have < need && (have += n) >= need) complete = time;
    CHECK(complete == span.end);
    ++checked;
  }
  return checked;
}

// As the serial executor orders tasks: segment, window, stage, slot; in a lane a core never goes back.
void checkLanes(const Step& step, const Trace& trace) {
  std::map<std::tuple<uint32_t, int32_t>, std::tuple<int32_t, int64_t, int32_t, int64_t>> last;
  std::map<int32_t, int64_t> busyUntil;
  for (const TraceSpan& span : trace.spans) {
    if (span.worker >= 0) {
      CHECK(span.begin >= busyUntil[span.worker]);
      busyUntil[span.worker] = span.end;
    }
    if (span.kind != SpanKind::kTask) continue;
    const FamilyOrder& order = step.plan->verified().order()[span.family.value];
    const int64_t window = span.slot / step.plan->space(step.plan->at(span.family).space)->window;
    const std::tuple key{order.segment, window, order.stage, span.slot};
    const auto [at, isFirst] = last.try_emplace({span.lane.value, span.core}, key);
    CHECK((isFirst || at->second <= key));
    at->second = key;
  }
}

int64_t checkStep(const Plan& plan, EntryId entry, const BoundRouting& bound, const SimResult& result) {
  std::vector<std::unique_ptr<RankStep>> steps;
  Deliveries deliveries;
  for (int rank = 0; rank < plan.program().mesh.peers(); ++rank) {
    steps.push_back(std::make_unique<RankStep>(plan, entry, rank, bound.of(plan, entry)[rank]));
    addDeliveries(steps.back()->step, result.traces[rank], deliveries);
  }
  int64_t waits = 0;
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    waits += checkWaitEnds(steps[rank]->step, result.traces[rank], deliveries);
    checkAllOnce(steps[rank]->step, result.traces[rank]);
    checkWaits(steps[rank]->step, result.traces[rank], deliveries);
    checkLanes(steps[rank]->step, result.traces[rank]);
  }
  return waits;
}

void checkEqual(const SimResult& a, const SimResult& b) {
  CHECK(a.end == b.end);
  CHECK(a.moments == b.moments);
  REQUIRE(a.traces.size() == b.traces.size());
  for (size_t rank = 0; rank < a.traces.size(); ++rank) {
    REQUIRE(a.traces[rank].spans.size() == b.traces[rank].spans.size());
    for (size_t i = 0; i < a.traces[rank].spans.size(); ++i) {
      const TraceSpan &one = a.traces[rank].spans[i], &other = b.traces[rank].spans[i];
      CHECK(one.begin == other.begin);
      CHECK(keyOf(one) == keyOf(other));
    }
  }
}

TEST_CASE("random programs and routings: all tasks run once, after their events, in the order of lanes") {
  Random random(20251125);
  int64_t tasks = 0, waits = 0;
  for (int round = 0; round < 200; ++round) {
    const TaskProgram program = round % 4 == 3 ? randomLinear(random) : randomMoe(random);
    const Plan plan = planOf(program);
    const Rates rates = randomRates(random);
    const std::vector<TestRouting> ranks = randomRouting(program, random);
    const SimOptions options{pick(random, 0, 3), true};
    const Expected<BoundRouting> bound = bindIds(plan, ranks);
    REQUIRE(bound);
    for (uint32_t entry = 0; entry < program.entries.size(); ++entry) {
      INFO("round " << round << ", entry " << entry);
      const SimResult result = simulate(plan, EntryId{entry}, ranks, rates, options);
      waits += checkStep(plan, EntryId{entry}, *bound, result);
      checkEqual(result, simulate(plan, EntryId{entry}, ranks, rates, options));
      tasks += result.tasks;
    }
  }
  CHECK(tasks > 10000);
  CHECK(waits > 500);
}

}  // namespace
}  // namespace sluice
