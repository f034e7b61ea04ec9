// Valid programs with changes of the kinds that verify() must judge: refused, or run with the right bits.
//
// The first byte chooses the program, two more the routing; each change is one byte for its kind and two for
// its place.
#include <string>
#include <vector>

#include "runtime/program/verify.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/program_checks.h"
#include "tests/proof/mutants.h"
#include "tests/runtime/program/verify_mutations.h"

namespace sluice {
namespace {

constexpr int kMaxChanges = 6;

std::vector<Mutation> allMutations() {
  std::vector<Mutation> all = recordMutations();
  for (const auto& more : {tableMutations(), subtleMutations()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  static const std::vector<TaskProgram> bases = mutantBases();
  static const std::vector<Mutation> mutations = allMutations();
  fuzz::Choices choices(data, size);
  const TaskProgram& base = bases[choices.below(static_cast<uint32_t>(bases.size()))];
  const uint64_t seed = choices.number(2);
  TaskProgram mutant = base;
  for (int change = 0; change < kMaxChanges && !choices.empty(); ++change) {
    const Mutation& mutation = mutations[choices.below(static_cast<uint32_t>(mutations.size()))];
    Random random(choices.number(2));
    mutation.apply(mutant, random);
  }
  const Expected<VerifiedProgram> verified = verify(mutant);
  if (!verified) {
    fuzz::requireMessage(verified.error().message, "");
    return 0;
  }
  fuzz::requireProgram(mutant);
  const std::string wrong = escape(mutant, base, seed);
  fuzz::require(wrong.empty(), wrong);
  return 0;
}
