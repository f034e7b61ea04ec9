#include "tests/proof/mutants.h"

#include <fmt/format.h>

#include <utility>

#include "tests/runtime/program/dense_program.h"
#include "tests/runtime/program/mutation_shapes.h"
#include "tests/testing/exchange_program.h"
#include "tests/testing/linear_program.h"
#include "tests/testing/packed_regions.h"
#include "tests/testing/separate_cores.h"
#include "tests/testing/spare_places.h"
#include "tools/evaluate/evaluate.h"

namespace sluice {
namespace {

constexpr int kSteps = 3;
constexpr double kTimeout = 120;     // seconds; nothing here waits, but a machine may be busy
constexpr double kTolerance = 0.02;  // of bf16 results; a row that is missing or old is far off

const ContextOptions kSerial{
    .threads = 1, .executor = ExecutorKind::kSerial, .timeoutSeconds = kTimeout, .pin = false};
const ContextOptions kParallel{
    .threads = 3, .executor = ExecutorKind::kParallel, .timeoutSeconds = kTimeout, .pin = false};

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

std::string wrongOutputOf(const Program& program, const std::vector<RandomStep>& steps) {
  std::vector<EntryId> entries;
  for (uint32_t e = 0; e < program.tables().entries.size(); ++e) entries.push_back(EntryId{e});
  std::pair<double, std::string> worst;
  for (const RandomStep& step : steps) {
    std::vector<tools::ValueMap> inputs;
    for (const tools::TensorMap& tensors : step.inputs) inputs.push_back(tools::toValues(tensors));
    const auto expected = tools::evaluate(program.verified(), entries, inputs, {.roundStored = true});
    if (!expected) return "evaluator: " + expected.error().message;
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
  return worst.first < kTolerance ? "" : fmt::format("{} is wrong by {}", worst.second, worst.first);
}

}  // namespace

std::vector<TaskProgram> mutantBases() {
  const auto [two, three, grouped, uneven, few, shared, alone, aloneGrouped, mesh] = mutationShapes();
  return {buildMoeProgram(two),
          buildMoeProgram(shared),
          buildMoeProgram(alone),
          buildMoeProgram(aloneGrouped),
          buildMoeProgram(mesh),
          buildMoeProgram(three),
          buildDenseProgram(two, false),
          buildDenseProgram(two, true),
          packRegions(buildDenseProgram(two, true)),
          buildMoeProgram(grouped),
          separateCores(buildDenseProgram(two, false), 2, 3, 1),
          buildMoeProgram(uneven),
          buildDenseProgram(few, false),
          buildLinearProgram({}),
          packRegions(buildLinearProgram({.column = false, .sameTokens = true, .in = 9, .out = 20})),
          buildExchangeProgram({}),
          spareExperts(buildMoeProgram(two), 2),
          spareExperts(buildExchangeProgram({.ranks = 3, .experts = 5, .hidden = 20, .cores = 2}), 1)};
}

bool saysTheSame(const TaskProgram& program, const TaskProgram& base) {
  if (program.mesh != base.mesh || program.experts != base.experts || program.spare != base.spare ||
      program.topK != base.topK || program.maxTokens != base.maxTokens || program.entries != base.entries ||
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

std::vector<RandomStep> mutantSteps(const TaskProgram& program, uint64_t seed) {
  std::vector<RandomStep> steps;
  for (int i = 0; i < kSteps; ++i) steps.push_back(randomStep(program, seed * kSteps + i));
  return steps;
}

StepsRun runParallel(const TaskProgram& program, std::vector<RandomStep>& steps) {
  const Expected<Program> loaded = Program::fromTaskProgram(program);
  if (!loaded) return {loaded.error().message, {}};
  return runSteps(*loaded, steps, kParallel, 0);
}

std::string wrongOutput(const TaskProgram& program, const std::vector<RandomStep>& steps) {
  const Expected<Program> loaded = Program::fromTaskProgram(program);
  return loaded ? wrongOutputOf(*loaded, steps) : loaded.error().message;
}

std::string escape(const TaskProgram& mutant, const TaskProgram& base, uint64_t seed) {
  const Expected<Program> program = Program::fromTaskProgram(mutant);
  if (!program) return "not loaded: " + program.error().message;
  std::vector<RandomStep> steps = mutantSteps(mutant, seed), again = mutantSteps(mutant, seed);
  const StepsRun serial = runSteps(*program, steps, kSerial, 0);
  if (!serial.error.empty()) return "serial: " + serial.error;
  const StepsRun parallel = runSteps(*program, again, kParallel, seed + 1);
  if (!parallel.error.empty()) return "parallel: " + parallel.error;
  if (parallel.bits != serial.bits) return "serial and parallel differ";
  if (!saysTheSame(mutant, base)) return wrongOutputOf(*program, steps);
  const Expected<Program> unchanged = Program::fromTaskProgram(base);
  if (!unchanged) return "not loaded: " + unchanged.error().message;
  std::vector<RandomStep> right = mutantSteps(base, seed);
  const StepsRun expected = runSteps(*unchanged, right, kSerial, 0);
  if (!expected.error.empty()) return "unchanged: " + expected.error;
  return expected.bits == serial.bits ? "" : "other bits than before";
}

}  // namespace sluice
