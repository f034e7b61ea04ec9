// Mutants of valid programs on the real executors: each is refused by verify(), or run step after step with
// fully random routings by the serial and the parallel executor, and gives the right bits.
//
// What is right: where a mutant says the same data flow as the program it comes from, the bits of that; where
// it says another (other operands, factors, activations), what the evaluator in double precision computes.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "runtime/program/verify.h"
#include "tests/proof/random_steps.h"
#include "tests/runtime/program/dense_program.h"
#include "tests/runtime/program/proof_rounds.h"
#include "tests/runtime/program/verify_mutations.h"
#include "tests/testing/moe_program.h"
#include "tests/testing/packed_regions.h"
#include "tests/testing/separate_cores.h"
#include "tools/evaluate/evaluate.h"

namespace sluice {
namespace {

constexpr int kSteps = 3;
constexpr double kTimeout = 20;      // seconds; nothing here waits
constexpr double kTolerance = 0.02;  // of bf16 results; a row that is missing or old is far off

std::vector<TaskProgram> bases() {
  MoeShape two;
  two.ranks = 2;
  two.hidden = 20;
  two.intermediate = 6;
  two.maxTokens = 40;
  two.window = 2;
  two.tileN = 8;
  two.tileM = 8;
  MoeShape three = two;
  three.ranks = 3;
  three.experts = 3;
  three.topK = 3;
  three.hidden = 34;
  three.cores = 1;
  three.tokenSlot = 5;
  MoeShape grouped = two;
  grouped.groupSlots = 2;
  MoeShape uneven = two, few = three;  // ranks with different numbers of experts, also with none
  uneven.experts = 5;
  uneven.sumLast = true;
  few.experts = 2;
  few.topK = 2;
  return {buildMoeProgram(two),
          buildMoeProgram(three),
          buildDenseProgram(two, false),
          buildDenseProgram(two, true),
          packRegions(buildDenseProgram(two, true)),
          buildMoeProgram(grouped),
          separateCores(buildDenseProgram(two, false), 2, 3, 1),
          buildMoeProgram(uneven),
          buildDenseProgram(few, false)};
}

// --- data flow -------------------------------------------------------------------------------------------

// What a family computes and from what, but not how it is cut, placed and ordered.
Family computationOf(const Family& family) {
  Family plain;
  plain.entry = family.entry;
  plain.op = family.op;
  plain.space = family.space;
  plain.tiling = family.tiling;
  plain.tiling.tileM = plain.tiling.tileN = 0;
  plain.reads = family.reads;
  plain.writes = family.writes;
  return plain;
}

// Whether `program` computes all that `base` does in the same way; it may have families and buffers more.
bool saysTheSame(const TaskProgram& program, const TaskProgram& base) {
  if (program.ranks != base.ranks || program.experts != base.experts || program.topK != base.topK ||
      program.maxTokens != base.maxTokens || program.entries != base.entries ||
      program.families.size() < base.families.size() || program.buffers.size() < base.buffers.size())
    return false;
  for (size_t s = 0; s < base.spaces.size(); ++s)
    if (program.spaces[s].kind != base.spaces[s].kind) return false;
  for (size_t f = 0; f < base.families.size(); ++f)
    if (computationOf(program.families[f]) != computationOf(base.families[f])) return false;
  for (size_t b = 0; b < base.buffers.size(); ++b) {
    const Buffer &own = program.buffers[b], &other = base.buffers[b];
    if (own.name != other.name || own.type != other.type || own.shape != other.shape ||
        own.role != other.role)
      return false;
  }
  return true;
}

// --- one mutant ------------------------------------------------------------------------------------------

std::vector<RandomStep> stepsFor(const TaskProgram& program, uint64_t seed) {
  std::vector<RandomStep> steps;
  for (int i = 0; i < kSteps; ++i) steps.push_back(randomStep(program, seed * kSteps + i));
  return steps;
}

const ContextOptions kSerial{
    .threads = 1, .executor = ExecutorKind::kSerial, .timeoutSeconds = kTimeout, .pin = false};
const ContextOptions kParallel{
    .threads = 3, .executor = ExecutorKind::kParallel, .timeoutSeconds = kTimeout, .pin = false};

Program programOf(const TaskProgram& tables) {
  auto program = Program::fromTaskProgram(tables);
  REQUIRE((program.ok() ? "" : program.error().message) == "");
  return std::move(*program);
}

// The largest relative error of any output of the steps, rounded where the program stores; and whose it is.
std::pair<double, std::string> evaluationError(const Program& program, const std::vector<RandomStep>& steps) {
  std::vector<EntryId> entries;
  for (uint32_t e = 0; e < program.tables().entries.size(); ++e) entries.push_back(EntryId{e});
  std::pair<double, std::string> worst;
  for (const RandomStep& step : steps) {
    std::vector<tools::ValueMap> inputs;
    for (const tools::TensorMap& tensors : step.inputs) inputs.push_back(tools::toValues(tensors));
    const auto expected = tools::evaluate(program.verified(), entries, inputs, {.roundStored = true});
    REQUIRE((expected.ok() ? "" : expected.error().message) == "");
    for (const auto& [name, ignored] : step.outputs[0]) {
      std::vector<tools::Values> found;
      std::vector<const tools::Values*> left, right;
      for (const tools::TensorMap& tensors : step.outputs) found.push_back(tools::toValues(tensors.at(name)));
      for (size_t rank = 0; rank < found.size(); ++rank) {
        left.push_back(&found[rank]);
        right.push_back(&(*expected)[rank].at(name));
      }
      const double error = tools::relativeError(left, right);
      if (!(error <= worst.first)) worst = {error, name};
    }
  }
  return worst;
}

// What goes wrong with a mutant that verify() accepts, or "".
std::string escape(const TaskProgram& mutant, const TaskProgram& base, uint64_t seed) {
  const Program program = programOf(mutant);
  std::vector<RandomStep> steps = stepsFor(mutant, seed), again = stepsFor(mutant, seed);
  const StepsRun serial = runSteps(program, steps, kSerial, 0);
  if (!serial.error.empty()) return "serial: " + serial.error;
  const StepsRun parallel = runSteps(program, again, kParallel, seed + 1);
  if (!parallel.error.empty()) return "parallel: " + parallel.error;
  if (parallel.bits != serial.bits) return "serial and parallel differ";
  if (!saysTheSame(mutant, base)) {
    const auto [error, name] = evaluationError(program, steps);
    return error < kTolerance ? "" : fmt::format("{} is wrong by {}", name, error);
  }
  std::vector<RandomStep> right = stepsFor(base, seed);
  const StepsRun expected = runSteps(programOf(base), right, kSerial, 0);
  REQUIRE(expected.error == "");
  return expected.bits == serial.bits ? "" : "other bits than before";
}

struct Tally {
  int refused = 0, harmless = 0, sameFlow = 0;
  std::vector<std::string> escaped;
};

Tally runMutants(const std::vector<Mutation>& list, int count, int depth, uint64_t seed) {
  Random random(seed);
  Tally tally;
  const std::vector<TaskProgram> programs = bases();
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

TEST_CASE("valid programs give the evaluator's results") {
  for (const TaskProgram& base : bases()) {
    INFO(base.name);
    for (uint64_t seed = 0; seed < 10; ++seed) {
      CHECK(escape(base, base, seed) == "");
      std::vector<RandomStep> steps = stepsFor(base, seed);
      const Program program = programOf(base);
      REQUIRE(runSteps(program, steps, kParallel, 0).error == "");
      const auto [error, name] = evaluationError(program, steps);
      INFO(name);
      CHECK(error < kTolerance);
    }
  }
}

TEST_CASE("an output that is old or lost is seen") {
  const TaskProgram base = bases()[0];
  const Program program = programOf(base);
  std::vector<RandomStep> steps = stepsFor(base, 3);
  REQUIRE(runSteps(program, steps, kSerial, 0).error == "");
  CHECK(evaluationError(program, steps).first < kTolerance);
  tools::Tensor& dx = steps[0].outputs[0].at("dx");
  const auto columns = dx.shape()[1];
  REQUIRE(dx.shape()[0] > 2);
  std::copy_n(dx.as<BFloat16>() + columns, columns, dx.as<BFloat16>());  // one row
  CHECK(evaluationError(program, steps).first > 2 * kTolerance);
  CHECK(evaluationError(program, steps).second == "dx");
}

TEST_CASE("blunt mutants are refused, or run with the right bits") {
  std::vector<Mutation> list = recordMutations();
  for (const Mutation& mutation : tableMutations()) list.push_back(mutation);
  checkMutants("blunt mutants", runMutants(list, 1600, 1, 21));
}

TEST_CASE("mutants that are consistent around their damage are refused, or run with the right bits") {
  checkMutants("subtle mutants", runMutants(subtleMutations(), 1600, 1, 22));
  checkMutants("subtle mutants of two changes", runMutants(subtleMutations(), 800, 2, 23));
}

}  // namespace
}  // namespace sluice
