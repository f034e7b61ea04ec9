#include "compiler/api/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/analysis/cost/choice.h"
#include "compiler/analysis/events.h"
#include "compiler/analysis/splits.h"
#include "runtime/base/encodings.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

constexpr std::string_view kGraphPhases[] = {"import",        "quantize-weights",   "round-products",
                                             "differentiate", "weight-rows",        "scale-factors",
                                             "encode-kept",   "delay-weight-grads", "encode-dispatched",
                                             "fuse",          "quantize-rows",      "propagate-splits"};

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

std::vector<std::string_view> phaseNames() {
  std::vector<std::string_view> names(std::begin(kGraphPhases), std::end(kGraphPhases));
  names.push_back("form-tasks");
  names.push_back("read-in-place");
  for (const TaskPhase& phase : taskPhases()) names.push_back(phase.name);
  return names;
}

bool isGraphPhase(std::string_view phase) {
  return std::find(std::begin(kGraphPhases), std::end(kGraphPhases), phase) != std::end(kGraphPhases);
}

void addGraphPhase(mlir::OpPassManager& manager, std::string_view phase, const Target& target,
                   const CompileOptions& options) {
  const Encodings encodings = *parseEncodings(options.encode);
  const bool hasAmaxes = findInfo(encodings.rows->rounding).isScaled;
  if (phase == "quantize-weights" && (encodings.hasCodes() || !encodings.single.empty())) {
    QuantizeWeightsOptions quantize;
    if (options.trainable) quantize.keep = *options.trainable;
    quantize.encode = options.encode;
    manager.addPass(createQuantizeWeights(quantize));
  } else if (phase == "round-products" && encodings.rows->rounds()) {
    manager.addPass(createRoundProducts({.encode = options.encode}));
  } else if (phase == "weight-rows") {
    manager.addPass(createWeightRows());
  } else if (phase == "scale-factors" && hasAmaxes) {
    const AmaxSource amax = encodings.rows->amax;
    manager.addPass(createScaleFactors(
        {.delayed = amax == AmaxSource::kGiven, .outputs = amax == AmaxSource::kReturned}));
  } else if (phase == "encode-kept" && options.trainable && !encodings.keepsBf16) {
    manager.addPass(createEncodeKept());
  } else if (phase == "delay-weight-grads" && options.delayWeightGrads) {
    manager.addPass(createDelayWeightGrads());
  } else if (phase == "encode-dispatched" && encodings.sent->rounds()) {
    manager.addPass(createEncodeDispatched());
  } else if (phase == "quantize-rows" && (encodings.rows->hasCodes() || encodings.grads->hasCodes())) {
    manager.addPass(
        createQuantizeRows({.rows = encodings.rows->hasCodes(), .gradients = encodings.grads->hasCodes()}));
  } else if (phase == "differentiate" && options.trainable) {
    DifferentiateOptions differentiate;
    if (*options.trainable != std::vector<std::string>{"all"}) differentiate.trainable = *options.trainable;
    differentiate.accumulate = options.accumulate;
    differentiate.keep = options.keep;
    differentiate.grads = options.grads;
    manager.addPass(createDifferentiate(std::move(differentiate)));
  } else if (phase == "fuse") {
    FuseOptions fuse;
    // with separate cores, no core runs both a product and the node that reads it
    const std::vector<std::string> foldsOnly = {"scale"};
    fuse.kinds = target.cubeCores != 0 && options.fuse.empty() ? foldsOnly : options.fuse;
    manager.addPass(createFuse(std::move(fuse)));
  } else if (phase == "propagate-splits") {
    manager.addPass(createPropagateSplits({target.slotRows, target.tokenSlot}));
    manager.addPass(createCheckSplits());
  }
}

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
