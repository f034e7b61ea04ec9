#include "tests/runtime/sim/sim_run.h"

#include <catch2/catch.hpp>

namespace sluice {

Rates freeRates() {
  constexpr double kFree = 1e18;
  Rates rates;
  rates.matrix.gmm.flops = rates.matrix.gmmTransposed.flops = rates.matrix.weightGrad.flops = kFree;
  rates.vector = {kFree, kFree, kFree, kFree};
  rates.memory = {kFree, kFree, kFree, kFree, 0, 0};
  rates.caches = {kFree, kFree, kFree};
  rates.link = {kFree, 0};
  return rates;
}

std::vector<TestRouting> raggedRouting(int ranks) {
  std::vector<TestRouting> all;
  for (int rank = 0; rank < ranks; ++rank) {
    TestRouting& own = all.emplace_back();
    own.tokens = 64 - 17 * rank;
    for (int t = 0; t < own.tokens; ++t) own.ids.insert(own.ids.end(), {t % 2, t % 5 == 0 ? -1 : 3});
  }
  return all;
}

Plan planOf(const TaskProgram& program) {
  Expected<VerifiedProgram> verified = verify(program);
  if (!verified) FAIL(verified.error().message);
  return Plan::make(std::move(*verified));
}

Expected<BoundRouting> bindIds(const Plan& plan, const std::vector<TestRouting>& ranks, EntryId entry) {
  std::vector<RankRouting> routing;
  for (const TestRouting& rank : ranks) routing.push_back({rank.tokens, rank.ids, {}});
  return bindAll(plan, entry, routing);
}

SimResult simulate(const Plan& plan, EntryId entry, const std::vector<TestRouting>& ranks, const Rates& rates,
                   const SimOptions& options) {
  const Expected<BoundRouting> bound = bindIds(plan, ranks, plan.at(entry).routing);
  if (!bound) FAIL(bound.error().message);
  Expected<SimResult> result = simulateEntry(plan, entry, bound->of(plan, entry), rates, options);
  if (!result) FAIL(result.error().message);
  return std::move(*result);
}

}  // namespace sluice
