// The random cases of tests/gpu, with the kernel of this machine: results against double precision, by as
// many blocks as there can be and by one.
#include <fmt/format.h>

#include <random>

#include "tests/gpu/chain_case.h"
#include "tests/gpu/gated_case.h"
#include "tests/gpu/row_work_case.h"
#include "tests/gpu/weight_grad_case.h"
#include "tools/gpu_check/ladder.h"

namespace sluice::tools {
namespace {

template <class Case>
Expected<Finding> checkCases(const CheckMachine& machine, const LadderPlan& plan) {
  std::vector<OneRank> ranks;
  for (const int blocks : {0, 1}) {
    auto rank = OneRank::make(machine, blocks);
    if (!rank) return rank.error();
    ranks.push_back(std::move(*rank));
  }
  int cases = 0;
  for (uint64_t seed = plan.firstSeed; cases < plan.cases; ++seed) {
    Case it(seed);
    if (it.tileColumns() != ranks[0].backend().tileColumns()) continue;  // only on the model
    for (const OneRank& rank : ranks) {
      const std::string wrong = it.run(rank.backend(), plan.timeoutSeconds);
      if (!wrong.empty())
        return Error{fmt::format("seed {}, {} blocks: {}", seed, rank.backend().blocks(), wrong)};
    }
    ++cases;
  }
  return Finding(fmt::format("{} cases, by {} blocks and by 1", cases, ranks[0].backend().blocks()));
}

Expected<Finding> checkNoTasks(const CheckMachine& machine, const LadderPlan& plan) {
  const auto rank = OneRank::make(machine, 0);
  if (!rank) return rank.error();
  std::mt19937 random(1);
  gpu::ChainRun nothing;
  nothing.shuffle(gpu::kStart + 1, random);
  const std::string wrong = nothing.run(rank->backend(), {}, {}, plan.timeoutSeconds);
  if (!wrong.empty()) return Error{wrong};
  return Finding(fmt::format("{} blocks begin and end", rank->backend().blocks()));
}

}  // namespace

std::vector<NamedCheck> caseChecks(const CheckMachine& machine, const LadderPlan& plan) {
  std::vector<NamedCheck> checks;
  const auto add = [&](int rung, const char* name, const auto& check) {
    checks.push_back({rung, name, [&machine, plan, check] { return check(machine, plan); }});
  };
  add(kRungOfLaunch, "kernel without tasks", &checkNoTasks);
  add(kRungOfCases, "chained products", &checkCases<gpu::ChainCase>);
  add(kRungOfCases, "activations and their gradients", &checkCases<gpu::GatedCase>);
  add(kRungOfCases, "weight gradients", &checkCases<gpu::WeightGradCase>);
  add(kRungOfCases, "copies of rows and work on rows", &checkCases<gpu::RowWorkCase>);
  return checks;
}

}  // namespace sluice::tools
