#include "compiler/api/choose.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/analysis/cost/choice.h"
#include "compiler/analysis/events.h"
#include "compiler/analysis/splits.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

bool hasRows(const TaskProgram& program) {
  return std::any_of(program.families.begin(), program.families.end(),
                     [&](const Family& family) { return !findInfo(program.at(family.space).kind).dense; });
}

Status chooseByModel(const TaskProgram& program, const Target& target, const CompileOptions& options,
                     const FixedSizes& fixed, TaskOptions& chosen, std::vector<Decision>& decisions) {
  const std::vector<double>& shares = options.expect.shares;
  if (!shares.empty() && static_cast<int32_t>(shares.size()) != program.experts)
    return Error{fmt::format("{}: error: has shares of {} experts, but the graph has {}", options.expect.name,
                             shares.size(), program.experts)};
  Expected<TaskProgram> ordered = insertEvents(program);
  if (!ordered) return ordered.error();
  CostProblem problem{std::move(*ordered), chosen.communication};
  const auto complete = [&](const CutSizes& sizes, const Windows& windows,
                            std::span<const LaneRule> rules) -> Expected<VerifiedProgram> {
    return completeProgram(program, {sizes, windows, chosen.communication, {rules.begin(), rules.end()}});
  };
  SizeChoice choice = chooseSizes(std::move(problem), *target.rates, options.expect, chosen.sizes, fixed,
                                  target.windows, complete);
  chosen.sizes = choice.sizes;
  chosen.windows = choice.windows;
  chosen.laneRules = std::move(choice.laneRules);
  decisions.insert(decisions.end(), choice.decisions.begin(), choice.decisions.end());
  return {};
}

}  // namespace

Expected<TaskOptions> chooseTaskOptions(const TaskProgram& program, const DeclaredSlots& declared,
                                        const Target& target, const CompileOptions& options,
                                        std::vector<Decision>& decisions) {
  TaskOptions chosen{
      {declared.rows != 0 ? declared.rows : target.slotRows,
       declared.tokens != 0 ? declared.tokens : target.tokenSlot, target.tiles},
      target.windows,
      {program.cubeCores > 0 ? target.communicationCores : 0, options.sendCores, options.returnCores},
      {}};
  if (target.rates) {
    const FixedSizes fixed{.slotRows = declared.rows != 0 || options.slotRows != 0 || !hasRows(program),
                           .tokenSlot = declared.tokens != 0,
                           .tiles = options.tile != 0};
    if (Status status = chooseByModel(program, target, options, fixed, chosen, decisions); !status)
      return status.error();
  } else {
    decisions.push_back({"",
                         fmt::format("slots of {} rows and {} tokens, tiles of at most {} columns",
                                     target.slotRows, target.tokenSlot, target.tiles.gmmColumns),
                         fmt::format("target '{}' has no rates to choose by", target.name),
                         {},
                         kDecidedAllSizes});
  }
  const SplitSizes within = withinLimits({chosen.sizes.slotRows, chosen.sizes.tokenSlot, 0},
                                         program.mesh.sources(), program.maxTokens);
  if (declared.rows == 0) chosen.sizes.slotRows = within.rows;
  if (declared.tokens == 0) chosen.sizes.tokenSlot = within.tokens;
  return chosen;
}

}  // namespace sluice
