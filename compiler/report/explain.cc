#include "compiler/report/explain.h"

#include "compiler/report/reasons.h"

namespace sluice {
namespace {

// The priority of the lane that holds the family.
void addLane(const TaskProgram& program, FamilyId family, FamilyExplanation& explanation) {
  for (const Lane& lane : program.lanes) {
    int64_t tasks = 0;
    int32_t busy = 0;
    for (const std::vector<TaskRecord>& seat : lane.seats) {
      int64_t own = 0;
      for (const TaskRecord& record : seat) own += record.family == family ? 1 : 0;
      tasks += own;
      busy += own > 0 ? 1 : 0;
    }
    if (tasks == 0) continue;
    explanation.tasksInWindow = tasks;
    explanation.busyCores = busy;
    explanation.cores = static_cast<int32_t>(lane.seats.size());
    explanation.firstCore = lane.firstCore;
    explanation.priority = lane.priority;
    return;
  }
}

}  // namespace

Explanation explain(const VerifiedProgram& verified, moe::GraphOp graph,
                    const std::vector<Decision>& decisions) {
  const TaskProgram& program = *verified;
  const Reasons reasons(program, graph, decisions);
  Explanation explanation;
  for (uint32_t f = 0; f < program.families.size(); ++f) {
    const FamilyId id{f};
    FamilyExplanation family;
    family.family = id;
    family.tasksInStep = tasksInBalancedStep(program, program.families[f]);
    family.order = verified.order()[f];
    addLane(program, id, family);
    family.why = reasons.ofFamily(id);
    for (EventId event : program.families[f].waits) family.waits.push_back(reasons.ofWait(id, event));
    for (EventId event : program.families[f].signals) family.signals.push_back(reasons.ofSignal(id, event));
    family.work = countWork(program, program.families[f]);
    explanation.families.push_back(std::move(family));
  }
  explanation.memory = reportMemory(program);
  for (const RegionReport& region : explanation.memory.regions)
    explanation.sharing.push_back(reasons.ofSharing(region.buffers));
  for (const Decision& decision : decisions)
    if (decision.node.empty()) explanation.decisions.push_back(decision);
  return explanation;
}

}  // namespace sluice
