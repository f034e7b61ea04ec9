#include "compiler/passes/pipeline.h"

#include <algorithm>

#include "compiler/passes/passes.h"

namespace sluice {
namespace {

FormTasksOptions formTasksOptions(const Target& target, const PipelineOptions& options) {
  FormTasksOptions form;
  form.target = target.name;
  form.optionLine = options.optionLine;
  form.graphHash = options.graphHash;
  form.cores = target.cores;
  form.cubeCores = target.cubeCores;
  form.vectorCores = target.vectorCores;
  form.tokens = target.tokenSlot;
  form.gmmColumns = target.tiles.gmmColumns;
  form.gradRows = target.tiles.weightGradRows;
  form.gradColumns = target.tiles.weightGradColumns;
  form.tokensWindow = target.windows.tokens;
  form.rowsWindow = target.windows.rows;
  form.sendsWindow = target.windows.sends;
  form.returnsWindow = target.windows.returns;
  form.expertsWindow = target.windows.experts;
  return form;
}

constexpr std::string_view kGraphPhases[] = {"import", "differentiate", "fuse"};

}  // namespace

std::vector<std::string_view> phaseNames() {
  std::vector<std::string_view> names(std::begin(kGraphPhases), std::end(kGraphPhases));
  names.insert(names.end(), {"propagate-splits", "form-tasks", "insert-events", "assign-cores",
                             "order-queues", "plan-memory"});
  return names;
}

bool isGraphPhase(std::string_view phase) {
  return std::find(std::begin(kGraphPhases), std::end(kGraphPhases), phase) != std::end(kGraphPhases);
}

void addGraphPhase(mlir::OpPassManager& manager, std::string_view phase, const Target& target,
                   const PipelineOptions& options) {
  if (phase == "differentiate" && options.trainable) {
    DifferentiateOptions differentiate;
    differentiate.trainable = *options.trainable;
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
  }
}

void addTaskPhases(mlir::OpPassManager& manager, const Target& target, const PipelineOptions& options) {
  const auto stopsAt = [&](std::string_view phase) { return options.stopAfter == phase; };
  manager.addPass(createPropagateSplits({target.slotRows, target.tokenSlot}));
  manager.addPass(createCheckSplits());
  if (stopsAt("propagate-splits")) return;
  manager.addPass(createFormTasks(formTasksOptions(target, options)));
  if (stopsAt("form-tasks")) return;
  mlir::OpPassManager& program = manager.nest<task::ProgramOp>();
  program.addPass(createInsertEvents());
  if (stopsAt("insert-events")) return;
  program.addPass(createAssignCores({target.communicationCores}));
  if (stopsAt("assign-cores")) return;
  std::vector<std::string> rules;
  for (LaneRule rule : options.laneRules) rules.emplace_back(laneRuleName(rule));
  OrderQueuesOptions order;
  order.rules = rules;
  program.addPass(createOrderQueues(std::move(order)));
  if (stopsAt("order-queues")) return;
  program.addPass(createPlanMemory());
  if (stopsAt("plan-memory")) return;
  program.addPass(createCheckTasks());
}

}  // namespace sluice
