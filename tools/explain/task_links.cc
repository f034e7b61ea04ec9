#include "tools/explain/task_links.h"

#include <algorithm>

#include "runtime/program/space_table.h"

namespace sluice::tools {
namespace {

bool hasLink(const std::vector<EventId>& links, EventId event) {
  return std::ranges::find(links, event) != links.end();
}

// Calls use(family, slot) for all live slots of the families of the entry that have the event as a link.
template <class Use>
void forSlots(const AllSteps& steps, int rank, std::vector<EventId> Family::* links, EventId event,
              const Use& use) {
  const RoutingTables& tables = steps.tables[static_cast<size_t>(rank)];
  for (const FamilyId id : steps.plan.at(steps.entry).families) {
    if (!hasLink(steps.program().at(id).*links, event)) continue;
    const SpaceKind space = steps.plan.at(id).space;
    for (int64_t slot = 0; slot < liveSlots(tables, space); ++slot) use(id, slot);
  }
}

int64_t indexAt(const AllSteps& steps, int rank, FamilyId family, int64_t slot, EventId event) {
  return eventIndex(steps.tables[static_cast<size_t>(rank)], steps.plan.at(family).space, slot,
                    steps.program().at(event).space);
}

int findPeer(const AllSteps& steps, int rank, FamilyId family, int64_t slot) {
  return taskPeer(steps.at(rank), steps.plan.at(family).space, slot);
}

}  // namespace

Step AllSteps::at(int rank) const {
  Step step;
  step.plan = &plan;
  step.rank = rank;
  step.tables = &tables[static_cast<size_t>(rank)];
  step.entry = entry;
  return step;
}

std::vector<EventAt> listWaits(const AllSteps& steps, int rank, const Task& task) {
  std::vector<EventAt> waits;
  for (const EventId event : steps.program().at(task.family).waits)
    waits.push_back({rank, event, indexAt(steps, rank, task.family, task.slot, event)});
  return waits;
}

std::vector<EventAt> listSignals(const AllSteps& steps, int rank, const Task& task) {
  std::vector<EventAt> signals;
  for (const EventId event : steps.program().at(task.family).signals) {
    const bool isRemote = steps.program().at(event).remote;
    signals.push_back({isRemote ? findPeer(steps, rank, task.family, task.slot) : rank, event,
                       indexAt(steps, rank, task.family, task.slot, event)});
  }
  return signals;
}

uint64_t findThreshold(const AllSteps& steps, const EventAt& at) {
  return evaluateThreshold(steps.program().at(at.event), steps.tables[static_cast<size_t>(at.rank)],
                           at.index);
}

std::vector<SlotTasks> listProducers(const AllSteps& steps, const EventAt& at) {
  const EventArray& event = steps.program().at(at.event);
  std::vector<SlotTasks> found;
  for (int rank = 0; rank < static_cast<int>(steps.tables.size()); ++rank) {
    if (!event.remote && rank != at.rank) continue;
    forSlots(steps, rank, &Family::signals, at.event, [&](FamilyId id, int64_t slot) {
      if (indexAt(steps, rank, id, slot, at.event) != at.index) return;
      if (event.remote && findPeer(steps, rank, id, slot) != at.rank) return;
      const bool ofRows = event.unit == EventUnit::kRows;
      const RoutingTables& tables = steps.tables[static_cast<size_t>(rank)];
      found.push_back({rank, id, slot, ofRows ? findPiece(tables, steps.plan.at(id).space, slot).rows : 1});
    });
  }
  return found;
}

std::vector<SlotTasks> waitersFor(const AllSteps& steps, const EventAt& at) {
  std::vector<SlotTasks> found;
  forSlots(steps, at.rank, &Family::waits, at.event, [&](FamilyId id, int64_t slot) {
    if (indexAt(steps, at.rank, id, slot, at.event) == at.index) found.push_back({at.rank, id, slot, 0});
  });
  return found;
}

}  // namespace sluice::tools
