#include "compiler/analysis/cost/replay.h"

#include <catch2/catch.hpp>

#include "runtime/program/deal.h"
#include "tests/compiler/analysis/cost/problem_parts.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

// One rank, and as many slots of 16 rows of one expert as there are in 16 tokens.
CostProblem oneExpert(int32_t slots, int32_t cores) { return problemOf({{1}, 1, 1, 16 * slots}, cores); }

Replay replay(const CostProblem& problem, const Rates& rates, LaneRule rule = LaneRule::kFromEnd) {
  const ReplayStep step =
      replayStepOf(problem, expectRows({}, problem.step()),
                   static_cast<int32_t>(problem.step().experts / problem.step().mesh.peers()));
  const std::optional<Replay> result = replayEntry(problem, 0, rule, rates, step);
  if (!result) FAIL("not replayed");
  return *result;
}

TEST_CASE("one core runs a chain without a pause") {
  CostProblem problem = oneExpert(3, 1);
  const EventId done = addEvent(problem, EventSpace::kRows);
  problem.program.families = {family(SpaceKind::kRows, {}, {done}), family(SpaceKind::kRows, {done}, {})};
  const Replay result = replay(problem, secondsByRow(2));
  CHECK(result.seconds == Approx(6 * 16));
  CHECK(result.tasks == 6);
  CHECK(result.part == 1);
  REQUIRE(result.pools.size() == 1);
  CHECK(result.pools[0].busy == Approx(6 * 16));
  CHECK(result.waits.arrival + result.waits.producer + result.waits.end == Approx(0).margin(1e-9));
  // The chain from its end: each slot is finished before the next is begun.
  CHECK(result.families[1].firstStart == Approx(16));
  CHECK(replay(problem, secondsByRow(2), LaneRule::kFromBegin).families[1].firstStart == Approx(3 * 16));
}

TEST_CASE("two cores: what one waits for is the other's task, then there is nothing left") {
  // Three slots: core 0 has slots 0 and 2, core 1 has slot 1, of both families. Slot 2 is of core 0 alone.
  CostProblem problem = oneExpert(3, 2);
  const EventId done = addEvent(problem, EventSpace::kRows);
  problem.program.families = {family(SpaceKind::kRows, {}, {done}), family(SpaceKind::kRows, {done}, {})};
  Replay result = replay(problem, secondsByRow(2));
  CHECK(result.seconds == Approx(4 * 16));
  CHECK(result.waits.end == Approx(2 * 16));
  CHECK(result.waits.producer == Approx(0).margin(1e-9));

  // Behind all of the first (an event of one counter), core 1 waits for the third slot.
  problem.program.events[0].space = EventSpace::kOne;
  result = replay(problem, secondsByRow(2));
  CHECK(result.families[1].firstStart == Approx(2 * 16));
  CHECK(result.waits.producer == Approx(16));
  CHECK(result.waits.end == Approx(16));
}

TEST_CASE("rows of other ranks arrive one after the other at the rate of the link, own rows at once") {
  // Two ranks, an expert each with 32 rows: 16 own, 16 of the other rank, 2 bytes each.
  CostProblem problem = oneExpert(1, 1);
  setStep({{2}, 2, 2, 16}, problem);
  const EventId arrived = addEvent(problem, EventSpace::kRows, true);
  problem.program.families = {family(SpaceKind::kSends, {}, {arrived}, OpKind::kDispatch),
                              family(SpaceKind::kRows, {arrived}, {})};
  Rates rates = secondsByRow(2);
  rates.link = {0.1, 5};
  const Replay result = replay(problem, rates);
  REQUIRE(result.families[1].tasks == 2);
  CHECK(result.families[1].firstStart == Approx(0).margin(1e-9));
  // 16 rows of 2 bytes at 0.1 bytes a second, and the latency; then 16 seconds of work
  CHECK(result.seconds == Approx(320 + 5 + 16));
  CHECK(result.waits.arrival == Approx(325 - 16));
}

TEST_CASE("a weight gradient fills the time in which the chain waits for rows") {
  CostProblem problem = oneExpert(1, 1);
  setStep({{2}, 2, 2, 16}, problem);
  const EventId arrived = addEvent(problem, EventSpace::kRows, true);
  const EventId ready = addEvent(problem, EventSpace::kExperts);
  Family grad = family(SpaceKind::kExperts, {ready}, {}, OpKind::kGmmWeightGrad);
  grad.tiling.m = grad.tiling.tileM = grad.tiling.tileN = 1;
  problem.program.families = {family(SpaceKind::kSends, {}, {arrived}, OpKind::kDispatch),
                              family(SpaceKind::kTokens, {}, {}), grad,
                              family(SpaceKind::kRows, {arrived}, {})};
  Rates rates = secondsByRow(2);
  rates.link = {1, 0};
  // Tokens 16 s and own rows 16 s, the other rows at 32 s for 16 s; the gradient of 32 rows takes 32 s.
  const Replay filled = replay(problem, rates);
  CHECK(filled.seconds == Approx(16 + 16 + 16 + 32));
  CHECK(filled.waits.arrival == Approx(0).margin(1e-9));
  // Without tokens the gradient fills the whole of it; without the gradient nothing does.
  problem.program.families[1].tiling.n = 0;
  CHECK(replay(problem, rates).waits.arrival == Approx(0).margin(1e-9));
  problem.program.families.erase(problem.program.families.begin() + 2);
  CHECK(replay(problem, rates).waits.arrival == Approx(16));
}

TEST_CASE("cores of two kinds run their families side by side, and some only communicate") {
  CostProblem problem = oneExpert(8, 0);
  problem.program.cubeCores = 1;
  problem.program.vectorCores = 2;
  const EventId arrived = addEvent(problem, EventSpace::kRows, true);
  const EventId done = addEvent(problem, EventSpace::kRows);
  problem.program.families = {family(SpaceKind::kSends, {}, {arrived}, OpKind::kDispatch),
                              family(SpaceKind::kRows, {arrived}, {done}, OpKind::kGmm),
                              family(SpaceKind::kRows, {done}, {})};
  problem.program.families[1].core = CoreKind::kCube;
  problem.program.families[1].tiling.k = problem.program.families[1].tiling.tileN = 1;
  problem.program.families[0].core = problem.program.families[2].core = CoreKind::kVector;
  const Replay shared = replay(problem, secondsByRow(2));
  REQUIRE(shared.pools.size() == 2);
  CHECK(shared.pools[0].busy == Approx(128));
  CHECK(shared.pools[1].busy == Approx(128));
  CHECK(shared.seconds == Approx(128 + 16));
  problem.communication.reserved = 1;
  const Replay separate = replay(problem, secondsByRow(2));
  REQUIRE(separate.pools.size() == 3);
  CHECK(separate.pools[1].pool.cores == 1);
  CHECK(separate.pools[2].pool.communication);
  CHECK(separate.pools[2].busy == Approx(0).margin(1e-9));
  CHECK(separate.seconds == Approx(128 + 16));
}

TEST_CASE("fewer cores for sends or returns keep others free, and take longer for what they do") {
  for (const SpaceKind limited : {SpaceKind::kSends, SpaceKind::kReturns}) {
    CostProblem problem = oneExpert(8, 0);
    problem.program.cores = 4;
    problem.program.families = {
        family(limited, {}, {}, limited == SpaceKind::kSends ? OpKind::kDispatch : OpKind::kCombineReturn)};
    problem.program.families[0].tiling.n = 1 << 20;
    Rates rates = secondsByRow(2);
    rates.memory.coreRead = rates.memory.coreWrite = 1e9;
    rates.memory.sharedRead = rates.memory.sharedWrite = 1e12;
    const ExpectedRows rows = expectRows({}, problem.step());
    const double all = replay(problem, rates).seconds, cost = costOf(problem, rates, rows).seconds;
    REQUIRE(all > 0);
    (limited == SpaceKind::kSends ? problem.communication.returns : problem.communication.sends) = 1;
    CHECK(replay(problem, rates).seconds == all);
    CHECK(costOf(problem, rates, rows).seconds == cost);
    (limited == SpaceKind::kSends ? problem.communication.sends : problem.communication.returns) = 1;
    CHECK(replay(problem, rates).seconds == Approx(4 * all));
    CHECK(costOf(problem, rates, rows).seconds > 2 * cost);
  }
}

// The layer of docs/SCHEDULE.md, of slots of one size or two, on cores of one kind or two.
CostProblem layer(int64_t ranks, int32_t groupSlots, bool separate) {
  MoeShape shape;
  shape.ranks = ranks > 1 ? 2 : 1;
  shape.groupSlots = groupSlots;
  CostProblem problem{buildMoeProgram(shape), {}};
  setStep({{static_cast<int32_t>(ranks)}, 8 * ranks, 2, 200}, problem);
  if (!separate) return problem;
  problem.program.cores = 0;
  problem.program.cubeCores = 2;
  problem.program.vectorCores = 3;
  problem.communication.reserved = 1;
  for (Family& family : problem.program.families)
    family.core = family.op == OpKind::kGmm || family.op == OpKind::kGmmWeightGrad ? CoreKind::kCube
                                                                                   : CoreKind::kVector;
  return problem;
}

void checkAllRuns(const CostProblem& problem, uint32_t entry, LaneRule rule) {
  const ReplayStep step = replayStepOf(problem, expectRows({}, problem.step()), 8);
  const std::optional<Replay> one = replayEntry(problem, entry, rule, secondsByRow(2), step);
  const std::optional<Replay> two = replayEntry(problem, entry, rule, secondsByRow(2), step);
  REQUIRE(one);
  CHECK(one->seconds == two->seconds);
  CHECK(one->waits.producer == two->waits.producer);
  double spent = one->waits.arrival + one->waits.producer + one->waits.end, cores = 0;
  for (const ReplayedPool& pool : one->pools) {
    CHECK(pool.busy > 0);
    spent += pool.busy;
    cores += pool.pool.cores;
  }
  CHECK(spent == Approx(cores * one->replayed));
  for (size_t f = 0; f < problem.program.families.size(); ++f)
    CHECK((one->families[f].tasks > 0) == (problem.program.families[f].entry.value == entry));
}

TEST_CASE("every family of the layer runs all its tasks, the same way every time") {
  for (int64_t ranks : {1, 2, 8})
    for (int32_t groupSlots : {0, 2})
      for (bool separate : {false, true})
        for (uint32_t entry : {0u, 1u})
          for (LaneRule rule : kLaneRules) {
            INFO(ranks << " ranks, groups of " << groupSlots << " slots, separate cores " << separate);
            checkAllRuns(layer(ranks, groupSlots, separate), entry, rule);
          }
}

TEST_CASE("a wait that nothing signals is reported, not waited for") {
  CostProblem problem = oneExpert(1, 1);
  const EventId one = addEvent(problem, EventSpace::kRows), two = addEvent(problem, EventSpace::kRows);
  problem.program.families = {family(SpaceKind::kRows, {one}, {two}), family(SpaceKind::kRows, {two}, {one})};
  const ReplayStep step = replayStepOf(problem, expectRows({}, problem.step()), 1);
  CHECK(!replayEntry(problem, 0, LaneRule::kFromEnd, secondsByRow(2), step));
}

// The replay deals task n to core n mod cores, whatever the window of a table.
TEST_CASE("over all windows the deal is that of one endless window") {
  for (int32_t cores : {1, 3, 8})
    for (int32_t tiles : {1, 3, 8})
      for (int32_t window : {1, 2, 5, 16}) {
        const Deal deal = dealTasks(FamilyId{0}, window, tiles, cores);
        for (int32_t core = 0; core < cores; ++core) {
          std::vector<int64_t> run;
          for (int64_t w = 0; w < 4; ++w) {
            const int64_t seat = ((core - w * deal.rotation) % cores + cores) % cores;
            for (const TaskRecord& task : deal.seats[static_cast<size_t>(seat)])
              run.push_back((w * window + task.slot) * tiles + task.tile);
          }
          for (size_t i = 0; i < run.size(); ++i) REQUIRE(run[i] == core + static_cast<int64_t>(i) * cores);
        }
      }
}

TEST_CASE("of a large step some experts are replayed, and the rest keeps the cores busy") {
  MoeShape shape;
  CostProblem problem{buildMoeProgram(shape), {}};
  setStep({{1}, 64, 2, 2048}, problem);
  problem.program.cores = 3;
  const ExpectedRows rows = expectRows({}, problem.step());
  const LayerCost cost = costOf(problem, secondsByRow(2), rows);
  CHECK(expertsToReplay(problem, rows, cost, 1 << 30) == 64);
  const int32_t some = expertsToReplay(problem, rows, cost, 200);
  CHECK(some > 0);
  CHECK(some < 64);
  CHECK(expertsToReplay(problem, rows, cost, 1) == 0);
  const std::optional<Replay> all =
      replayEntry(problem, 1, LaneRule::kFromEnd, secondsByRow(2), replayStepOf(problem, rows, 64));
  const std::optional<Replay> part =
      replayEntry(problem, 1, LaneRule::kFromEnd, secondsByRow(2), replayStepOf(problem, rows, some));
  REQUIRE(all);
  REQUIRE(part);
  CHECK(part->tasks < all->tasks / 4);
  CHECK(part->seconds == Approx(all->seconds).epsilon(0.05));
  problem.program.events.clear();
  CHECK(expertsToReplay(problem, rows, cost, 1 << 30) == 0);
}

}  // namespace
}  // namespace sluice
