#include "compiler/api/choose.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/analysis/cost/choice.h"
#include "compiler/api/pass_timer.h"
#include "compiler/dialect/task.h"
#include "compiler/emit/emit.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"

namespace sluice {
namespace {

// Slots as no graph declares them, which a probe shows where the graph is silent.
constexpr int32_t kProbeRows = 1 << 16;
constexpr int32_t kProbeTokens = 1 << 16;

// The families of the program with slots and tiles as large as they come: what is to be cut.
std::optional<TaskProgram> probe(mlir::ModuleOp module, Target target, PipelineOptions pipeline,
                                 std::map<std::string, int>& runs) {
  mlir::OwningOpRef<mlir::ModuleOp> copy(module.clone());
  // What is wrong with the graph is reported by the compilation.
  const mlir::ScopedDiagnosticHandler quiet(module.getContext(),
                                            [](mlir::Diagnostic&) { return mlir::success(); });
  target.slotRows = kProbeRows;
  target.tokenSlot = kProbeTokens;
  target.tiles = {kMaxDim, kMaxDim, kMaxDim};
  pipeline.stopAfter = "form-tasks";
  mlir::PassManager passes(module.getContext());
  passes.addInstrumentation(std::make_unique<PassTimer>(nullptr, runs));
  addTaskPhases(passes, target, pipeline);
  if (failed(passes.run(*copy))) return std::nullopt;
  const auto programs = llvm::to_vector(copy->getOps<task::ProgramOp>());
  if (programs.size() != 1) return std::nullopt;
  return emitProgram(programs.front());
}

}  // namespace

Expected<Chosen> chooseTarget(mlir::ModuleOp module, Target target, const CompileOptions& options,
                              const PipelineOptions& pipeline, std::vector<Decision>& decisions,
                              std::map<std::string, int>& runs) {
  if (!target.rates) {
    decisions.push_back({"",
                         fmt::format("slots of {} rows and {} tokens, tiles of at most {} columns",
                                     target.slotRows, target.tokenSlot, target.tiles.gmmColumns),
                         fmt::format("target '{}' has no rates to choose by", target.name),
                         {},
                         kDecidedAllSizes});
    return Chosen{std::move(target), {}};
  }
  const std::optional<TaskProgram> program = probe(module, target, pipeline, runs);
  if (!program) return Chosen{std::move(target), {}};
  CostProblem problem = costProblemOf(*program);
  if (problem.cubeCores > 0) problem.communicationCores = target.communicationCores;
  const std::vector<double>& shares = options.expect.shares;
  if (!shares.empty() && static_cast<int64_t>(shares.size()) != problem.step.experts)
    return Error{fmt::format("{}: error: has shares of {} experts, but the graph has {}", options.expect.name,
                             shares.size(), problem.step.experts)};
  // propagate-splits makes no slot longer than all rows an expert can get, or all tokens of a rank.
  const int64_t mostRows = (int64_t{program->ranks} * program->maxTokens + 15) / 16 * 16;
  const bool declaresRows = problem.slotRows != std::min<int64_t>(kProbeRows, mostRows),
             declaresTokens = problem.tokenSlot != std::min(kProbeTokens, program->maxTokens);
  const FixedSizes fixed{.slotRows = declaresRows || options.slotRows != 0,
                         .tokenSlot = declaresTokens,
                         .tiles = options.tile != 0};
  const CostSizes start{declaresRows ? problem.slotRows : target.slotRows,
                        declaresTokens ? problem.tokenSlot : target.tokenSlot, target.tiles};
  SizeChoice choice =
      chooseSizes(std::move(problem), *target.rates, options.expect, start, fixed, target.windows);
  if (!declaresRows) target.slotRows = choice.sizes.slotRows;
  if (!declaresTokens) target.tokenSlot = choice.sizes.tokenSlot;
  target.tiles = choice.sizes.tiles;
  target.windows = choice.windows;
  decisions.insert(decisions.end(), choice.decisions.begin(), choice.decisions.end());
  return Chosen{std::move(target), std::move(choice.laneRules)};
}

}  // namespace sluice
