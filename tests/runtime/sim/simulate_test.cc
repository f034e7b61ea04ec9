#include "runtime/sim/simulate.h"

#include <catch2/catch.hpp>

#include "runtime/cost/task_cost.h"
#include "tests/runtime/sim/sim_run.h"
#include "tests/testing/exchange_program.h"
#include "tests/testing/moe_program.h"
#include "tests/testing/separate_cores.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

constexpr SimTime kNano = 1000, kMicro = 1'000'000;
const EntryId kDispatch{0}, kCombine{1};

// One expert per rank, and rows of 10 floats: a row and its weight are 44 bytes on the link, and 20 elements
// of two bytes for the scale that hands it over.
TaskProgram exchangeOf(int ranks) {
  return buildExchangeProgram({.ranks = ranks, .experts = ranks, .topK = 1, .hidden = 10, .cores = 1});
}

// As many tokens, all for that expert.
TestRouting allTo(int32_t expert, int64_t tokens) {
  return {tokens, std::vector<int32_t>(static_cast<size_t>(tokens), expert)};
}

// A task takes 1 us, a byte on the link 1 ns, an element of a scale 1 ns.
Rates handRates() {
  Rates rates = freeRates();
  rates.task = 1e-6;
  rates.link = {1e9, 5e-6};
  rates.vector.copy = 1e9;
  return rates;
}

TEST_CASE("two ranks and a link: every time is that of the hand") {
  const Plan plan = planOf(exchangeOf(2));
  // the task that sends; 8 rows on the link, and its latency; the task that hands the rows over
  const SimTime arrival = kMicro + 8 * 44 * kNano + 5 * kMicro;
  const SimTime end = arrival + kMicro + 8 * 20 * kNano;
  const SimResult result = simulate(plan, kDispatch, {allTo(1, 8), allTo(1, 0)}, handRates(), {0, true});
  CHECK(result.end == end);
  CHECK(result.tasks == 2);
  CHECK(result.workers == 1);
  REQUIRE(result.ranks.size() == 2);
  const SimRankTimes& sender = result.ranks[0];
  const SimRankTimes& receiver = result.ranks[1];
  CHECK(sender.end == kMicro);
  CHECK(sender.sent == 8 * 44);
  CHECK(sender.messages == 1);
  CHECK(sender.rows == 0);
  CHECK(receiver.rows == 8);
  CHECK(receiver.end == end);
  CHECK(receiver.arrival == arrival);
  CHECK(receiver.producer == 0);
  REQUIRE(receiver.waits.size() == 1);
  CHECK(plan.program().at(receiver.waits[0].event).name == "rows_arrived");
  CHECK(plan.program().at(receiver.waits[0].family).name == "hand_over");
  CHECK(receiver.waits[0].time == arrival);
  // nobody computes meanwhile: all of it is exposed
  CHECK(sender.outstanding == arrival);
  CHECK(sender.exposed == arrival);
  CHECK(receiver.outstanding == arrival - kMicro);
  CHECK(receiver.exposed == arrival - kMicro);
  // the same in the trace
  REQUIRE(result.traces.size() == 2);
  const std::vector<TraceSpan>& spans = result.traces[1].spans;
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].kind == SpanKind::kWait);
  CHECK(spans[0].end == arrival / kNano);
  CHECK(spans[1].kind == SpanKind::kTask);
  CHECK(spans[1].rows == 8);
  CHECK(spans[1].end == end / kNano);
}

TEST_CASE("rows for one rank come in one after the other, rows of one rank go out one after the other") {
  const Plan plan = planOf(exchangeOf(3));
  const SimTime rows = 8 * 44 * kNano, handed = kMicro + 8 * 20 * kNano, both = kMicro + 16 * 20 * kNano;
  // in: both pieces are of one slot of rank 2, and reach it at the same time
  CHECK(simulate(plan, kDispatch, {allTo(2, 8), allTo(2, 8), allTo(2, 0)}, handRates()).end ==
        kMicro + 5 * kMicro + 2 * rows + both);
  // out: rank 0 sends to rank 1, then to rank 2, one task after the other and one message after the other
  TestRouting two = allTo(1, 8);
  two.tokens = 16;
  two.ids.resize(16, 2);
  Rates rates = handRates();
  rates.task = 0;
  const SimResult result = simulate(plan, kDispatch, {two, allTo(0, 0), allTo(0, 0)}, rates);
  CHECK(result.ranks[1].arrival == 5 * kMicro + rows);
  CHECK(result.ranks[2].arrival == 5 * kMicro + 2 * rows);
  CHECK(result.end == 5 * kMicro + 2 * rows + handed - kMicro);
}

TEST_CASE("rows return over the link, and the sum of the tokens waits for the last of them") {
  const Plan plan = planOf(exchangeOf(2));
  Rates rates = handRates();
  rates.vector.sum = 1e9;
  // 4 rows of each rank at the other, whose returned probabilities go with them
  const SimResult result = simulate(plan, kCombine, {allTo(1, 4), allTo(0, 4)}, rates);
  CHECK(result.end == kMicro + 4 * 40 * kNano + 5 * kMicro + kMicro + 4 * 20 * kNano);
  CHECK(result.ranks[0].end == result.ranks[1].end);
  CHECK(result.ranks[0].arrival == 4 * 40 * kNano + 5 * kMicro);
}

TEST_CASE("one core runs one task after the other: the time is the sum of the costs of all tasks") {
  MoeShape shape{.experts = 3, .topK = 2, .maxTokens = 50, .cores = 1};
  const Plan plan = planOf(buildMoeProgram(shape));
  Rates rates = freeRates();
  rates.matrix.gmm.flops = rates.matrix.gmmTransposed.flops = 1e10;
  rates.matrix.weightGrad = {1e9, 3, 5, 7};
  rates.vector = {1e9, 2e9, 3e9, 4e9};
  rates.memory = {1e9, 2e9, 3e9, 4e9, 64, 0};
  rates.task = 1e-7;
  std::vector<TestRouting> ranks(1);
  ranks[0].tokens = 37;
  for (int t = 0; t < 37; ++t) ranks[0].ids.insert(ranks[0].ids.end(), {t % 2, t % 5 == 0 ? -1 : 2});
  const Expected<BoundRouting> bound = bindIds(plan, ranks);
  REQUIRE(bound);
  for (const EntryId entry : {EntryId{0}, EntryId{1}}) {
    const SimResult result = simulate(plan, entry, ranks, rates);
    const RoutingTables& tables = bound->of(plan, entry)[0];
    SimTime sum = 0;
    int64_t tasks = 0;
    for (const FamilyId id : plan.at(entry).families) {
      const Family& family = plan.program().at(id);
      const SpaceKind space = plan.at(id).space;
      for (int64_t slot = 0; slot < liveSlots(tables, space); ++slot) {
        const SlotWork work = slotWork(tables, space, slot, plan.space(space)->slotSize);
        const double seconds =
            taskCost(plan.program(), family, work.rows, work.reuse, TaskRates(rates, 1)).seconds();
        sum += family.tiles * toSimTime(seconds);
        tasks += family.tiles;
      }
    }
    CHECK(result.tasks == tasks);
    CHECK(result.end == sum);
    CHECK(result.ranks[0].busy[static_cast<size_t>(CoreKind::kUnified)] == sum);
    CHECK(result.ranks[0].arrival + result.ranks[0].producer + result.ranks[0].idle == 0);
    CHECK(result.ranks[0].products > 0);
    CHECK(result.ranks[0].products < sum);
  }
}

// Each rank has as many tokens for each expert, so their steps are mirror images.
TEST_CASE("where ranks are alike, one that stands for all takes as long as all of them") {
  Rates rates = freeRates();
  rates.task = 1e-7;
  rates.link = {1e9, 5e-6};
  rates.vector = {1e9, 2e9, 3e9, 4e9};
  rates.matrix.gmm.flops = rates.matrix.gmmTransposed.flops = 1e11;
  rates.matrix.weightGrad.flops = 1e11;
  for (const int ranks : {1, 2}) {
    const MoeShape shape{.ranks = ranks, .experts = 4, .topK = 1, .maxTokens = 64};
    const Plan plan = planOf(buildMoeProgram(shape));
    std::vector<TestRouting> routing(static_cast<size_t>(ranks));
    for (TestRouting& rank : routing) {
      rank.tokens = 64;
      for (int t = 0; t < 64; ++t) rank.ids.push_back(t % 4);
    }
    const Expected<BoundRouting> bound = bindIds(plan, routing);
    REQUIRE(bound);
    for (const EntryId entry : {EntryId{0}, EntryId{1}}) {
      const SimResult all = simulate(plan, entry, routing, rates);
      const Expected<SimResult> one = simulateOneForAll(plan, entry, 0, bound->of(plan, entry)[0], rates);
      REQUIRE(one);
      REQUIRE(one->ranks.size() == 1);
      CHECK(one->end == all.ranks[0].end);
      CHECK(one->tasks == all.ranks[0].tasks);
      CHECK(one->ranks[0].sent == all.ranks[0].sent);
      CHECK(one->ranks[0].arrival == all.ranks[0].arrival);
      CHECK((one->ranks[0].sent > 0) == (ranks > 1));
    }
  }
}

TEST_CASE("cores that read at the same time share the bandwidth of the memory") {
  // two experts at one rank, 8 rows each: two pieces, each copied by a task of its own
  TaskProgram program =
      buildExchangeProgram({.ranks = 1, .experts = 2, .topK = 1, .hidden = 10, .cores = 2, .slotRows = 16});
  const Plan plan = planOf(program);
  TestRouting routing = allTo(0, 8);
  routing.tokens = 16;
  routing.ids.resize(16, 1);
  Rates rates = freeRates();
  rates.memory.coreRead = 1e9;  // 8 rows of 40 bytes: 320 ns
  CHECK(simulate(plan, kDispatch, {routing}, rates).end == 320 * kNano);
  rates.memory.sharedRead = 1e9;
  CHECK(simulate(plan, kDispatch, {routing}, rates).end == 640 * kNano);
  rates.memory.sharedRead = 1.5e9;
  CHECK(simulate(plan, kDispatch, {routing}, rates).end == Approx(2.0 / 1.5 * 320 * kNano).epsilon(1e-6));
  // one worker plays both cores
  CHECK(simulate(plan, kDispatch, {routing}, rates, {1, false}).end == 640 * kNano);
}

TEST_CASE("matrix and vector cores work at the same time, and only matrix cores hide communication") {
  const TaskProgram program = separateCores(
      buildMoeProgram({.ranks = 2, .experts = 4, .topK = 2, .maxTokens = 64, .cores = 3}), 2, 3, 1);
  const Plan plan = planOf(program);
  std::vector<TestRouting> ranks(2);
  for (TestRouting& rank : ranks) {
    rank.tokens = 64;
    for (int t = 0; t < 64; ++t) rank.ids.insert(rank.ids.end(), {t % 4, (t + 1) % 4});
  }
  Rates rates = freeRates();
  rates.task = 1e-6;
  rates.link = {1e9, 1e-6};
  const SimResult slow = simulate(plan, EntryId{0}, ranks, rates);
  CHECK(slow.kindsApart);
  CHECK(slow.workers == 5);
  const SimRankTimes& times = slow.ranks[0];
  CHECK(times.busy[static_cast<size_t>(CoreKind::kUnified)] == 0);
  CHECK(times.busy[static_cast<size_t>(CoreKind::kCube)] == times.products);
  CHECK(times.busy[static_cast<size_t>(CoreKind::kVector)] > 0);
  CHECK(times.exposed > 0);
  CHECK(times.exposed < times.outstanding);
  CHECK(times.outstanding <= slow.end);
  // all time of all workers has one name
  SimTime sum = times.arrival + times.producer + times.idle;
  for (const SimTime busy : times.busy) sum += busy;
  CHECK(sum == times.end * slow.workers);
}

TEST_CASE("a rank without tokens, and experts without rows, have tasks without rows or none at all") {
  const Plan plan = planOf(buildMoeProgram({.ranks = 2, .experts = 4, .topK = 1, .maxTokens = 40}));
  Rates rates = freeRates();
  rates.task = 1e-6;
  const std::vector<TestRouting> ranks = {allTo(3, 20), allTo(3, 0)};
  const SimResult forward = simulate(plan, EntryId{0}, ranks, rates);
  CHECK(forward.ranks[0].rows == 0);
  CHECK(forward.ranks[1].rows == 20);
  int64_t empty = 0;
  for (const SimFamily& family : forward.families) empty += family.empty;
  CHECK(empty == 0);
  const SimResult backward = simulate(plan, EntryId{1}, ranks, rates);
  for (uint32_t f = 0; f < backward.families.size(); ++f) {
    const Family& family = plan.program().families[f];
    const SimFamily& times = backward.families[f];
    // the weight gradients of 3 of the 4 experts are zeroed
    if (plan.at(FamilyId{f}).space == SpaceKind::kExperts) CHECK(times.empty == 3 * family.tiles);
    if (times.tasks > 0) CHECK(times.busy >= times.tasks * kMicro);
  }
  const std::vector<TestRouting> none = {allTo(0, 0), allTo(0, 0)};
  CHECK(simulate(plan, EntryId{0}, none, rates).tasks == 0);
  CHECK(simulate(plan, EntryId{0}, none, rates).end == 0);
}

TEST_CASE("tables that do not belong together end in the report of a wait, not in a loop") {
  const Plan plan = planOf(exchangeOf(2));
  const Expected<BoundRouting> good = bindIds(plan, {allTo(1, 8), allTo(1, 3)}),
                               other = bindIds(plan, {allTo(0, 8), allTo(1, 3)});
  REQUIRE((good && other));
  AllTables mixed = good->of(plan, kDispatch);
  mixed[0] = other->of(plan, kDispatch)[0];  // it keeps the rows that rank 1 waits for
  const Expected<SimResult> result = simulateEntry(plan, kDispatch, mixed, handRates());
  REQUIRE_FALSE(result);
  CHECK_THAT(result.error().message,
             Contains("in simulated time: rank 1, core 0: waited ") &&
                 Contains(" for event rows_arrived[0] (3 of 11 rows) before task hand_over[0,0]; "
                          "missing: 8 rows from rank 0"));
}

TEST_CASE("an entry that takes too long is an error") {
  const Plan plan = planOf(exchangeOf(2));
  Rates rates = freeRates();
  rates.task = 2000;
  const Expected<BoundRouting> bound = bindIds(plan, {allTo(1, 8), allTo(1, 3)});
  const Expected<SimResult> result = simulateEntry(plan, kDispatch, bound->of(plan, kDispatch), rates);
  REQUIRE_FALSE(result);
  CHECK(result.error().message == "entry 'dispatch' takes more than 1000 s of simulated time");
}

}  // namespace
}  // namespace sluice
