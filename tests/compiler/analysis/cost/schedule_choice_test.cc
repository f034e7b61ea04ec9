#include "compiler/analysis/cost/schedule_choice.h"

#include <catch2/catch.hpp>

#include "tests/compiler/analysis/cost/problem_parts.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

ScheduleChoice choose(const CostProblem& problem, const Rates& rates, const std::vector<CutSizes>& sizes) {
  return chooseSchedule(problem, rates, expectRows({}, problem.step()), sizes);
}

// 64 rows in 4 slots. A vector core makes what the cube core needs (16 s a slot), and finishes it (16 s);
// the cube core takes 28 s a slot. From the end, what the cube core needs comes 32 s apart.
TEST_CASE("the chain goes from its beginning where another kind of core would starve") {
  CostProblem problem = problemOf({{1}, 1, 1, 64}, 0);
  problem.program.cubeCores = problem.program.vectorCores = 1;
  const EventId made = addEvent(problem, EventSpace::kRows);
  problem.program.families = {family(SpaceKind::kRows, {}, {made}), family(SpaceKind::kRows, {made}, {}),
                              family(SpaceKind::kRows, {made}, {}, OpKind::kGmm)};
  problem.program.families[0].core = problem.program.families[1].core = CoreKind::kVector;
  problem.program.families[2].core = CoreKind::kCube;
  problem.program.families[2].tiling.n = 7;
  problem.program.families[2].tiling.k = 1;
  const ScheduleChoice choice = choose(problem, secondsByRow(8), {{16, 16, {}}});
  REQUIRE(choice.replays.size() == 1);
  CHECK(choice.laneRules[0] == LaneRule::kFromBegin);
  CHECK(choice.replays[0].seconds == Approx(16 + 4 * 28));
  REQUIRE(choice.decisions.size() == 2);
  CHECK(choice.decisions[0].what == "lanes of entry 'forward': communication, the chain from its beginning");
  CHECK_THAT(choice.decisions[0].why, Contains("128000.000 ms; next communication, the chain from its end, "
                                               "140000.000 ms"));
  CHECK_THAT(choice.decisions[1].why, Contains("cube cores 88% busy, vector cores 100% busy"));
}

// Two ranks; what comes back leaves at the rate of the link, so that it must not wait for all of the chain.
TEST_CASE("the chain goes from its end where results leave over a slow link") {
  CostProblem problem = problemOf({{2}, 2, 2, 64}, 1);
  const EventId made = addEvent(problem, EventSpace::kRows), done = addEvent(problem, EventSpace::kRows),
                returned = addEvent(problem, EventSpace::kOne, true);
  problem.program.families = {family(SpaceKind::kRows, {}, {made}), family(SpaceKind::kRows, {made}, {done}),
                              family(SpaceKind::kReturns, {done}, {returned}, OpKind::kCombineReturn),
                              family(SpaceKind::kTokens, {returned}, {}, OpKind::kCombineSum)};
  Rates rates = secondsByRow(8);
  rates.link.bandwidth = 1;
  const ScheduleChoice choice = choose(problem, rates, {{16, 16, {}}});
  CHECK(choice.laneRules[0] == LaneRule::kFromEnd);
  CHECK_THAT(choice.decisions[0].why, Contains("next communication, the chain from its beginning"));
  CHECK_THAT(choice.decisions[0].why, !Contains("no real difference"));
}

TEST_CASE("of the best sizes those are taken that the replay finds clearly better") {
  CostProblem problem = problemOf({{1}, 1, 1, 48}, 2);
  const EventId made = addEvent(problem, EventSpace::kRows);
  problem.program.families = {family(SpaceKind::kRows, {}, {made}), family(SpaceKind::kRows, {made}, {})};
  const CutSizes whole{48, 16, {}}, cut{16, 16, {}};
  const ScheduleChoice other = choose(problem, secondsByRow(8), {whole, cut});
  CHECK(other.sizes == 1);
  CHECK(other.replays[0].seconds == Approx(4 * 16));
  CHECK_THAT(other.decisions[0].what, Contains("slots of 16 rows"));
  CHECK_THAT(other.decisions[0].why, Contains("clearly better than the model's choice: of 2 replayed"));
  CHECK(choose(problem, secondsByRow(8), {cut, whole}).sizes == 0);
  CHECK(choose(problem, secondsByRow(8), {whole}).sizes == 0);
}

// 480 rows on two cores; a task costs a tenth of a second.
TEST_CASE("of sizes that the replay finds as fast as the best, the model's first are taken") {
  CostProblem problem = problemOf({{1}, 1, 1, 480}, 2);
  const EventId made = addEvent(problem, EventSpace::kRows);
  problem.program.families = {family(SpaceKind::kRows, {}, {made}), family(SpaceKind::kRows, {made}, {})};
  Rates rates = secondsByRow(8);
  rates.task = 0.1;
  const CutSizes whole{480, 16, {}}, fine{16, 16, {}}, coarse{48, 16, {}};
  const ScheduleChoice choice = choose(problem, rates, {whole, fine, coarse});
  CHECK(choice.sizes == 1);
  CHECK(choice.replays[0].seconds == Approx(480 + 30 * 0.1));
  CHECK_THAT(choice.decisions[0].why, Contains("481000.000 ms, no real difference"));
  CHECK(choose(problem, rates, {whole, coarse, fine}).sizes == 1);
}

TEST_CASE("without events nothing is replayed, and the decision says so") {
  CostProblem problem = problemOf({{1}, 1, 1, 48}, 2);
  problem.program.families = {family(SpaceKind::kRows, {}, {})};
  const ScheduleChoice choice = choose(problem, secondsByRow(8), {{16, 16, {}}});
  CHECK(choice.replays.empty());
  CHECK(choice.laneRules == std::vector<LaneRule>{LaneRule::kFromEnd});
  REQUIRE(choice.decisions.size() == 1);
  CHECK_THAT(choice.decisions[0].why, Contains("too large to be replayed"));
}

TEST_CASE("windows cover what is expected, give each core a task, and keep tables small") {
  const auto windowOf = [](int64_t tokens, int32_t cores, int32_t columns) {
    CostProblem problem = problemOf({{1}, 1, 1, tokens}, cores);
    problem.program.families = {family(SpaceKind::kRows, {}, {}, OpKind::kGmm)};
    problem.program.families[0].tiling.n = columns;
    problem.program.families[0].tiling.tileN = 1;
    const LayerCost cost = costOf(problem, secondsByRow(8), expectRows({}, problem.step()));
    return chooseWindows({}, problem, cost).rows;
  };
  CHECK(windowOf(16 * 1000, 2, 1) == 16);
  CHECK(windowOf(16 * 3, 2, 1) == 4);
  CHECK(windowOf(16 * 1000, 100, 1) == 100);
  CHECK(windowOf(16 * 1000, 100, 10) == 16);
  CHECK(windowOf(16 * 1000, 2, 1 << 14) == 4);
  CHECK(windowOf(16 * 1000, 2, 1 << 20) == 1);
}

}  // namespace
}  // namespace sluice
