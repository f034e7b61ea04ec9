#include "compiler/analysis/cost/choice.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <ctime>

#include "compiler/target/target.h"
#include "tests/compiler/analysis/cost/problem_parts.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

Target cpu() {
  const std::vector<std::string> folders = {"targets"};
  const Expected<Target> target = loadTarget("cpu", folders);
  if (!target) FAIL(target.error().message);
  return *target;
}

// A layer of any size: that of a small program with other dimensions.
CostProblem layer(int32_t hidden, int32_t inter, const StepShape& step, int32_t cores = 8) {
  MoeShape shape;
  shape.ranks = step.mesh.peers() > 1 ? 2 : 1;
  CostProblem problem{buildMoeProgram(shape), {}};
  setStep(step, problem);
  problem.program.cores = cores;
  const auto scaled = [&](int32_t& size) {
    if (size == shape.hidden)
      size = hidden;
    else if (size == shape.intermediate)
      size = inter;
    else if (size == 2 * shape.intermediate)
      size = 2 * inter;
  };
  for (Family& family : problem.program.families) {
    scaled(family.tiling.m);
    scaled(family.tiling.n);
    if (family.op == OpKind::kGmm) scaled(family.tiling.k);
  }
  return problem;
}

// The choice by the model alone: nothing is simulated.
Expected<VerifiedProgram> incomplete(const CutSizes&, const Windows&, std::span<const LaneRule>) {
  return Error{"not completed"};
}

SizeChoice choose(const CostProblem& problem, const FixedSizes& fixed = {}, const Expectation& expect = {}) {
  const Target target = cpu();
  return chooseSizes(problem, *target.rates, expect, {target.slotRows, target.tokenSlot, target.tiles}, fixed,
                     target.windows, incomplete);
}

TEST_CASE("every shape has a choice, with tables that a program may have") {
  for (const auto& [hidden, inter] : {std::pair{1, 1}, {7, 3}, {2048, 768}, {1 << 20, 1 << 19}, {1, 1 << 19}})
    for (int64_t experts : {1, 6, 4096}) {
      const CostProblem problem =
          layer(hidden, inter, {.mesh = {1}, .experts = experts, .topK = 1, .tokens = 1000});
      const SizeChoice choice = choose(problem);
      INFO(hidden << " " << inter << " " << experts);
      CHECK(choice.sizes.slotRows % 16 == 0);
      CHECK(choice.cost.seconds > 0);
      CHECK(choice.cost.seconds < 1e9);
      CostProblem cut = problem;
      cutBy(choice.sizes, cut.program);
      for (const Family& family : cut.program.families) {
        const Tiling& t = family.tiling;
        const int64_t tilesN = t.tileN > 0 ? (t.n + t.tileN - 1) / t.tileN : 1;
        const int64_t tilesM = t.tileM > 0 ? (t.m + t.tileM - 1) / t.tileM : 1;
        const int32_t window = cut.familySpace(family) == SpaceKind::kRows ? choice.windows.rows : 1;
        CHECK(tilesM * tilesN * window <= 1 << 20);
      }
    }
}

TEST_CASE("the choice is the best of its neighbours") {
  const CostProblem problem = layer(2048, 768, {.mesh = {1}, .experts = 16, .topK = 8, .tokens = 512}, 2);
  const SizeChoice choice = choose(problem);
  const ExpectedRows rows = expectRows({}, problem.step());
  const Rates rates = *cpu().rates;
  for (int32_t slot : {16, 64, 256})
    for (int32_t tile : {64, 256, 768}) {
      CostProblem other = problem;
      cutBy({slot, 32, {tile, tile, tile}}, other.program);
      CHECK(choice.cost.seconds <= computeCost(other, rates, rows).seconds);
    }
}

// Two ranks, a core each, at 210 Mbit/s.
TEST_CASE("where the link bounds the step, the sizes leave cores as much time as for a fast link") {
  const CostProblem problem = layer(2048, 768, {.mesh = {2}, .experts = 16, .topK = 8, .tokens = 512}, 1);
  const Target target = cpu();
  const auto chooseFor = [&](double bandwidth) {
    Rates rates = *target.rates;
    rates.link.bandwidth = bandwidth;
    return chooseSizes(problem, rates, {}, {target.slotRows, target.tokenSlot, target.tiles}, {},
                       target.windows, incomplete);
  };
  const SizeChoice slow = chooseFor(210e6 / 8), fast = chooseFor(1e12);
  CHECK(slow.cost.seconds > 1.5 * slow.cost.busy);
  CHECK(slow.cost.busy < 1.01 * fast.cost.busy);
  const auto explains = [](const SizeChoice& choice) {
    return std::any_of(choice.decisions.begin(), choice.decisions.end(), [](const Decision& decision) {
      return decision.why.find("within noise, with less work") != std::string::npos;
    });
  };
  CHECK(explains(slow));
  CHECK(slow.decisions == chooseFor(210e6 / 8).decisions);
}

TEST_CASE("many rows an expert get large slots; with fewer than any slot the target's size stays") {
  const auto slots = [](int64_t tokens) {
    return choose(layer(1024, 512, {.mesh = {1}, .experts = 64, .topK = 2, .tokens = tokens})).sizes.slotRows;
  };
  CHECK(slots(64) == 128);
  CHECK(slots(1 << 14) > 128);
}

TEST_CASE("what is fixed stays, and the decision says so") {
  const CostProblem problem = layer(2048, 768, {.mesh = {1}, .experts = 16, .topK = 8, .tokens = 512});
  const SizeChoice choice = choose(problem, {.slotRows = true, .tokenSlot = true, .tiles = true});
  CHECK(choice.sizes.slotRows == 128);
  CHECK(choice.sizes.tokenSlot == 32);
  CHECK(choice.sizes.tiles.gmmColumns == 256);
  CHECK(choice.decisions[1].what == "slots of 128 rows");
  CHECK(choice.decisions[1].why == "declared in the graph or given by hand");
}

TEST_CASE("decisions give the time and the next best, for the program and for each family") {
  const SizeChoice choice = choose(layer(2048, 768, {.mesh = {1}, .experts = 16, .topK = 8, .tokens = 512}));
  REQUIRE(choice.decisions.size() > 6);
  CHECK(choice.decisions[0].what == "tuned for uniform routing");
  CHECK(choice.decisions[0].why.find("4096 rows") != std::string::npos);
  CHECK(choice.decisions[1].why.find("next best") != std::string::npos);
  CHECK(choice.decisions.back().node == "gate_up_weight_grad");
}

TEST_CASE("the same input gives the same choice, in less than two seconds of processor time") {
  const CostProblem problem = layer(7168, 2048, {.mesh = {64}, .experts = 256, .topK = 8, .tokens = 4096});
  Expectation zipf;
  zipf.exponent = 1.2;
  const std::clock_t begin = std::clock();
  const SizeChoice choice = choose(problem, {}, zipf);
  CHECK(std::clock() - begin < 2 * CLOCKS_PER_SEC);
  CHECK(choice.decisions == choose(problem, {}, zipf).decisions);
}

}  // namespace
}  // namespace sluice
