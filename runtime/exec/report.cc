#include "runtime/exec/report.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {
namespace {

constexpr size_t kMostNamed = 8;

void join(std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; }

// Rows of the event's slot, group or expert that come from `source`.
int64_t rowsExpected(const Step& step, EventSpace space, int64_t index, int source) {
  int64_t rows = 0;
  for (const Piece& piece : step.tables->returns) {
    const int64_t at = space == EventSpace::kRows     ? piece.slot
                       : space == EventSpace::kGroups ? piece.group
                                                      : piece.expert;
    if (piece.peer == source && at == index) rows += piece.rows;
  }
  return rows;
}

// A rank is named if rows of the event come from it and it has not delivered all it has to send here.
std::string missingRanks(const Step& step, const EventArray& event, int64_t index, int64_t lack) {
  const bool returned = event.space == EventSpace::kOne;
  const SpaceKind space = returned ? SpaceKind::kReturns : SpaceKind::kSends;
  const auto& expected = returned ? step.tables->pairsTo : step.tables->rowsFrom;
  std::string list;
  int named = 0;
  for (int source = 0; source < step.transport->size(); ++source) {
    const int64_t open = expected[source] - static_cast<int64_t>(step.events->arrivedFrom(space, source));
    const int64_t here = returned ? open : rowsExpected(step, event.space, index, source);
    if (open <= 0 || here <= 0) continue;
    join(list, fmt::format("{} rows from rank {}", std::min({open, here, lack}), source));
    ++named;
  }
  return named > 1 ? fmt::format("{} rows, of at most {}", lack, list) : list;
}

std::string missingTasks(const Step& step, EventId wait, int64_t index,
                         const std::function<bool(const Task&)>& isDone) {
  const EventArray& event = step.program().at(wait);
  std::string list;
  size_t missing = 0;
  for (FamilyId id : step.plan->at(step.entry).families) {
    const FamilyPlan& producer = step.plan->at(id);
    if (std::find(producer.signals.begin(), producer.signals.end(), wait) == producer.signals.end()) continue;
    for (int64_t slot = 0; slot < liveSlots(step, producer.space); ++slot) {
      if (eventIndex(step, producer.space, slot, event.space) != index) continue;
      for (int32_t tile = 0; tile < step.program().at(id).tiles; ++tile) {
        const Task task{id, slot, tile};
        if (isDone(task) || ++missing > kMostNamed) continue;
        join(list, taskName(step, task));
      }
    }
  }
  if (missing > kMostNamed) join(list, fmt::format("{} more", missing - kMostNamed));
  return list;
}

}  // namespace

std::string taskName(const Step& step, const Task& task) {
  return fmt::format("{}[{},{}]", step.program().at(task.family).name, task.slot, task.tile);
}

std::string describeWait(const Step& step, const Task& task, std::string_view core, double seconds,
                         const std::function<bool(const Task&)>& isDone) {
  const FamilyPlan& family = step.plan->at(task.family);
  for (EventId wait : family.waits) {
    if (!wait) continue;
    const EventArray& event = step.program().at(wait);
    const int64_t index = eventIndex(step, family.space, task.slot, event.space);
    const int64_t have = step.events->have(wait, index), need = step.events->need(wait, index);
    if (have >= need) continue;
    std::string missing = event.remote ? missingRanks(step, event, index, need - have)
                                       : missingTasks(step, wait, index, isDone);
    if (missing.empty()) missing = "a signal that no unfinished task owes";
    return fmt::format(
        "rank {}, {}: waited {:g} s for event {}[{}] ({} of {} {}) before task {}; missing: {}",
        step.transport->rank(), core, seconds, event.name, index, have, need,
        event.unit == EventUnit::kRows ? "rows" : "tasks", taskName(step, task), missing);
  }
  return fmt::format("rank {}, {}: task {} did not run within {:g} s", step.transport->rank(), core,
                     taskName(step, task), seconds);
}

}  // namespace sluice
