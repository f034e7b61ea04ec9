#include "compiler/analysis/cost/cost.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "compiler/target/target.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

Rates cpuRates() {
  const std::vector<std::string> folders = {"targets"};
  const Expected<Target> target = loadTarget("cpu", folders);
  if (!target) FAIL(target.error().message);
  return target->rates.value();
}

TEST_CASE("a program is costed by entry and by family") {
  MoeShape shape;
  shape.ranks = 2;
  shape.maxTokens = 512;
  const CostProblem problem{buildMoeProgram(shape), {}};
  CHECK(problem.slotSize(SpaceKind::kRows) == 16);
  CHECK(problem.slotSize(SpaceKind::kTokens) == 8);
  CHECK(problem.slotSize(SpaceKind::kGroups) == 0);
  const ExpectedRows rows = expectRows({}, problem.step());
  const LayerCost cost = computeCost(problem, cpuRates(), rows);
  REQUIRE(cost.entries.size() == 2);
  CHECK(cost.seconds == Approx(cost.entries[0] + cost.entries[1]));
  CHECK(cost.entries[1] > cost.entries[0]);
  for (size_t f = 0; f < problem.program.families.size(); ++f) {
    const Family& family = problem.program.families[f];
    INFO(family.name);
    CHECK(cost.families[f].tasks > 0);
    CHECK(cost.families[f].seconds > 0);
    CHECK(cost.families[f].seconds >= cost.families[f].product);
    const SpaceKind space = problem.familySpace(family);
    const bool sends = space == SpaceKind::kSends || space == SpaceKind::kReturns;
    CHECK((cost.families[f].link > 0) == sends);
  }
}

TEST_CASE("a fused program costs less tasks and the same products") {
  MoeShape shape;
  shape.maxTokens = 512;
  const auto productsOf = [&](bool fused, double& tasks) {
    shape.fused = fused;
    const CostProblem problem{buildMoeProgram(shape), {}};
    const LayerCost cost = computeCost(problem, cpuRates(), expectRows({}, problem.step()));
    double product = 0;
    tasks = 0;
    for (const FamilyCost& family : cost.families) {
      product += family.product;
      tasks += family.tasks;
    }
    return product;
  };
  double tasks = 0, fusedTasks = 0;
  const double product = productsOf(false, tasks), fusedProduct = productsOf(true, fusedTasks);
  CHECK(fusedTasks < tasks);
  CHECK(fusedProduct == Approx(product).epsilon(0.35));
}

}  // namespace
}  // namespace sluice
