#include <catch2/catch.hpp>

#include "compiler/analysis/cost/choice.h"
#include "compiler/analysis/events.h"
#include "compiler/analysis/task_phases.h"
#include "tests/compiler/analysis/cost/problem_parts.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

// A layer as form-tasks makes it.
TaskProgram formed(const MoeShape& shape) {
  TaskProgram program = buildMoeProgram(shape);
  program.lanes.clear();
  program.events.clear();
  program.regions.clear();
  for (Buffer& buffer : program.buffers) buffer.region = {};
  for (Family& family : program.families) {
    family.waits.clear();
    family.signals.clear();
  }
  return program;
}

struct Layer {
  explicit Layer(const MoeShape& shape) : program(formed(shape)) {}

  TaskProgram program;
  CommunicationCores communication;

  ScheduleChoice choose(const Rates& rates, const std::vector<CutSizes>& sizes) const {
    Expected<TaskProgram> ordered = insertEvents(program);
    if (!ordered) FAIL(ordered.error().message);
    const CostProblem problem{std::move(*ordered), communication};
    const auto complete = [&](const CutSizes& cut, const Windows& windows, std::span<const LaneRule> rules) {
      Expected<VerifiedProgram> made =
          completeProgram(program, {cut, windows, communication, {rules.begin(), rules.end()}});
      if (!made) FAIL(made.error().message);
      return made;
    };
    return chooseSchedule(problem, rates, expectRows({}, problem.step()), sizes, {}, complete);
  }
};

// With activationRates(), only the activation of the forward layer takes time: a second for each row.
Layer forward(int ranks, int experts, int tokens, int cores) {
  MoeShape shape{.ranks = ranks, .experts = experts, .topK = 1, .maxTokens = tokens, .cores = cores};
  shape.forwardOnly = true;
  return Layer(shape);
}
Rates activationRates() {
  Rates rates = secondsByRow(1e30);
  rates.vector.activation = MoeShape{}.intermediate;
  rates.vector.activationGrad = rates.vector.sum = rates.vector.copy = 1e30;
  return rates;
}

// Everything takes time.
Rates allRates() {
  Rates rates = secondsByRow(1e9);
  rates.vector = {1e9, 1e9, 1e9, 1e9};
  return rates;
}

TEST_CASE("of the best sizes those are taken that are clearly faster when simulated") {
  const Layer layer = forward(1, 1, 48, 2);
  const CutSizes whole{48, 16, {}}, cut{16, 16, {}};
  const ScheduleChoice other = layer.choose(activationRates(), {whole, cut});
  CHECK(other.sizes == 1);
  REQUIRE(other.entries.size() == 1);
  CHECK(other.entries[0].part == 1);
  CHECK(other.entries[0].seconds == Approx(2 * 16));
  CHECK_THAT(other.decisions[0].what, Contains("slots of 16 rows"));
  CHECK_THAT(other.decisions[0].why, Contains("clearly better than the model's choice: of 2 simulated"));
  CHECK_THAT(other.decisions[2].what, Contains("entry 'forward' simulated with 100% of the step"));
  CHECK_THAT(other.decisions[2].why, Contains("cores 75% busy; 25% of the time is waiting for rows"));
  CHECK(layer.choose(activationRates(), {cut, whole}).sizes == 0);
  CHECK(layer.choose(activationRates(), {whole}).sizes == 0);
}

TEST_CASE("of sizes that are as fast as the best when simulated, the model's first are taken") {
  const Layer layer = forward(1, 1, 480, 2);
  Rates rates = activationRates();
  rates.task = 0.01;
  const CutSizes whole{480, 16, {}}, fine{16, 16, {}}, coarse{48, 16, {}};
  const ScheduleChoice choice = layer.choose(rates, {whole, fine, coarse});
  CHECK(choice.sizes == 1);
  CHECK_THAT(choice.decisions[0].why, Contains("no real difference"));
  CHECK(layer.choose(rates, {whole, coarse, fine}).sizes == 1);
}

// What comes back leaves at the rate of the link, so that it must not wait for all of the chain.
TEST_CASE("the chain goes from its end where results leave over a slow link") {
  const Layer layer = forward(2, 2, 64, 1);
  Rates rates = activationRates();
  rates.matrix.gmm.flops = 2.0 * 16 * MoeShape{}.hidden * MoeShape{}.intermediate;
  rates.link.bandwidth = 64;  // a row a second
  const ScheduleChoice choice = layer.choose(rates, {{16, 16, {}}});
  REQUIRE(choice.laneRules.size() == 1);
  CHECK(choice.laneRules[0] == LaneRule::kFromEnd);
  REQUIRE(choice.decisions.size() == 2);
  CHECK(choice.decisions[0].what == "lanes of entry 'forward': communication, the chain from its end");
  CHECK_THAT(choice.decisions[0].why, Contains("next communication, the chain from its beginning"));
  CHECK_THAT(choice.decisions[0].why, !Contains("no real difference"));
}

TEST_CASE("matrix and vector cores are explained apart") {
  MoeShape shape{.experts = 2, .topK = 1, .maxTokens = 64};
  Layer layer(shape);
  layer.program.cores = 0;
  layer.program.cubeCores = 1;
  layer.program.vectorCores = 2;
  for (Family& family : layer.program.families)
    family.core = family.op == OpKind::kGmm || family.op == OpKind::kGmmWeightGrad ? CoreKind::kCube
                                                                                   : CoreKind::kVector;
  layer.communication.reserved = 1;
  const ScheduleChoice choice = layer.choose(allRates(), {{16, 16, {}}});
  REQUIRE(choice.entries.size() == 2);
  CHECK_THAT(choice.decisions[1].why, Contains("cube cores ") && Contains("% busy, vector cores "));
  // the families of an entry, and only those, have run
  for (size_t f = 0; f < layer.program.families.size(); ++f)
    for (uint32_t entry = 0; entry < 2; ++entry)
      CHECK((choice.entries[entry].result.families[f].tasks > 0) ==
            (layer.program.families[f].entry.value == entry));
}

TEST_CASE("of a large step some experts are simulated, and the rest keeps the cores busy") {
  MoeShape shape{.experts = 512, .topK = 2, .maxTokens = 1 << 14, .cores = 3};
  const Layer layer(shape);
  const Rates rates = allRates();
  const ScheduleChoice choice = layer.choose(rates, {{16, 16, {}}});
  REQUIRE(choice.entries.size() == 2);
  CHECK(choice.entries[1].part < 0.7);
  CHECK(choice.entries[1].result.tasks <= 1 << 13);
  CostProblem cut{layer.program, {}};
  cutBy({16, 16, {}}, cut.program);
  const LayerCost cost = computeCost(cut, rates, expectRows({}, cut.step()));
  CHECK(choice.entries[1].seconds == Approx(cost.entries[1]).epsilon(0.05));
}

TEST_CASE("a step that cannot be simulated gets the usual order, and the decision says so") {
  MoeShape shape{.experts = 1, .topK = 1, .maxTokens = 1 << 20};
  const ScheduleChoice choice = Layer(shape).choose(secondsByRow(8), {{16, 16, {}}, {32, 16, {}}});
  CHECK(choice.entries.empty());
  CHECK(choice.sizes == 0);
  CHECK(choice.laneRules == std::vector<LaneRule>(2, LaneRule::kFromEnd));
  REQUIRE(choice.decisions.size() == 1);
  CHECK_THAT(choice.decisions[0].why, Contains("too large to be simulated"));
}

TEST_CASE("windows cover what is expected, give each core a task, and keep tables small") {
  const auto windowOf = [](int64_t tokens, int32_t cores, int32_t columns) {
    CostProblem problem = problemOf({{1}, 1, 1, tokens}, cores);
    problem.program.families = {family(SpaceKind::kRows, {}, {}, OpKind::kGmm)};
    problem.program.families[0].tiling.n = columns;
    problem.program.families[0].tiling.tileN = 1;
    const LayerCost cost = computeCost(problem, secondsByRow(8), expectRows({}, problem.step()));
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
