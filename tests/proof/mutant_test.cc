// Mutants of valid programs on the real executors: each is refused by verify(), or run step after step with
// fully random routings by the serial and the parallel executor, and gives the right bits.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "runtime/program/verify.h"
#include "tests/proof/mutants.h"
#include "tests/runtime/program/proof_rounds.h"
#include "tests/runtime/program/verify_mutations.h"

namespace sluice {
namespace {

struct Tally {
  int refused = 0, harmless = 0, sameFlow = 0;
  std::vector<std::string> escaped;
};

Tally runMutants(const std::vector<Mutation>& list, int count, int depth, uint64_t seed) {
  Random random(seed);
  Tally tally;
  const std::vector<TaskProgram> programs = mutantBases();
  for (int i = 0; i < proofShare(count); ++i) {
    const TaskProgram& base = programs[i % programs.size()];
    TaskProgram mutant = base;
    std::string names;
    for (int change = 0; change < depth; ++change) {
      const Mutation& mutation = list[random() % list.size()];
      mutation.apply(mutant, random);
      names += std::string(change > 0 ? ", " : "") + mutation.name;
    }
    if (mutant == base) {
      --i;
      continue;
    }
    if (!verify(mutant)) {
      ++tally.refused;
      continue;
    }
    const std::string found = escape(mutant, base, random() % 100000);
    if (!found.empty()) tally.escaped.push_back(names + " of " + base.name + ": " + found);
    tally.harmless += found.empty();
    tally.sameFlow += saysTheSame(mutant, base);
  }
  return tally;
}

void checkMutants(const char* what, const Tally& tally) {
  std::printf("%s: %d refused, %d harmless (%d with the same data flow), %zu escaped\n", what, tally.refused,
              tally.harmless, tally.sameFlow, tally.escaped.size());
  for (const std::string& escaped : tally.escaped) UNSCOPED_INFO(escaped);
  CHECK(tally.escaped.empty());
}

TEST_CASE("valid programs give the evaluator's results", "[blunt]") {
  for (const TaskProgram& base : mutantBases()) {
    INFO(base.name);
    for (uint64_t seed = 0; seed < 10; ++seed) {
      CHECK(escape(base, base, seed) == "");
      std::vector<RandomStep> steps = mutantSteps(base, seed);
      CHECK(runParallel(base, steps).error == "");
      CHECK(wrongOutput(base, steps) == "");
    }
  }
}

TEST_CASE("an output that is old or lost is seen", "[blunt]") {
  const TaskProgram base = mutantBases()[0];
  std::vector<RandomStep> steps = mutantSteps(base, 3);
  REQUIRE(runParallel(base, steps).error == "");
  CHECK(wrongOutput(base, steps) == "");
  tools::Tensor& dx = steps[0].outputs[0].at("dx");
  const auto columns = dx.shape()[1];
  REQUIRE(dx.shape()[0] > 2);
  std::copy_n(dx.as<BFloat16>() + columns, columns, dx.as<BFloat16>());  // one row
  CHECK_THAT(wrongOutput(base, steps), Catch::Matchers::StartsWith("dx is wrong by"));
}

TEST_CASE("blunt mutants are refused, or run with the right bits", "[blunt]") {
  std::vector<Mutation> list = recordMutations();
  for (const Mutation& mutation : tableMutations()) list.push_back(mutation);
  checkMutants("blunt mutants", runMutants(list, 1600, 1, 21));
}

TEST_CASE("mutants that are consistent around their damage are refused, or run with the right bits",
          "[subtle]") {
  checkMutants("subtle mutants", runMutants(subtleMutations(), 1600, 1, 22));
}

TEST_CASE("mutants of two consistent changes are refused, or run with the right bits", "[twice]") {
  checkMutants("subtle mutants of two changes", runMutants(subtleMutations(), 800, 2, 23));
}

}  // namespace
}  // namespace sluice
