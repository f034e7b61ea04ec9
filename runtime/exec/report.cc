#include "runtime/exec/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/exec/lane_cursor.h"

namespace sluice {
namespace {

constexpr size_t kMaxNamed = 8;

void join(std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; }

// The number of rows of the event's slot, group or expert that come from `source`.
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

struct Wait {
  EventId event;
  int64_t index = 0;
  uint64_t have = 0;
  uint64_t need = 0;
};

// The task's first incomplete wait; no event if there is none.
Wait openWait(const Step& step, const Task& task) {
  const SpaceKind space = step.plan->at(task.family).space;
  for (EventId event : step.program().at(task.family).waits) {
    const int64_t index = eventIndex(*step.tables, space, task.slot, step.program().at(event).space);
    const uint64_t have = step.events->have(event, index), need = step.events->need(event, index);
    if (have < need) return {event, index, have, need};
  }
  return {};
}

int64_t familiesIn(const Step& step, SpaceKind space) {
  const auto& families = step.plan->at(step.entry).families;
  return std::count_if(families.begin(), families.end(),
                       [&](FamilyId id) { return step.plan->at(id).space == space; });
}

// Rows of the event that `source` may still owe: it contributes to the event, and has not delivered
// everything that it must send here.
int64_t rowsOwed(const Step& step, const EventArray& event, int64_t index, int source) {
  const bool returned = event.space == EventSpace::kOne;
  const SpaceKind space = returned ? SpaceKind::kReturns : SpaceKind::kSends;
  const int64_t rows = returned ? step.tables->returnsFrom[source] : step.tables->rowsFrom[source];
  const int64_t open =
      familiesIn(step, space) * rows - static_cast<int64_t>(step.events->arrivedFrom(space, source));
  return std::min(open, returned ? open : rowsExpected(step, event.space, index, source));
}

// The ranks that may still owe rows of the event, and how many each.
std::vector<std::pair<int32_t, int64_t>> owingRanks(const Step& step, const EventArray& event,
                                                    int64_t index) {
  std::vector<std::pair<int32_t, int64_t>> ranks;
  for (int source = 0; source < step.transport->size(); ++source)
    if (const int64_t owed = rowsOwed(step, event, index, source); owed > 0) ranks.emplace_back(source, owed);
  return ranks;
}

// The tasks of this rank that signal the event and have not run.
std::vector<Task> owingTasks(const Step& step, EventId wait, int64_t index, const IsDone& isDone) {
  std::vector<Task> tasks;
  for (FamilyId id : step.plan->at(step.entry).families) {
    const Family& producer = step.program().at(id);
    const SpaceKind space = step.plan->at(id).space;
    if (std::find(producer.signals.begin(), producer.signals.end(), wait) == producer.signals.end()) continue;
    for (int64_t slot = 0; slot < liveSlots(*step.tables, space); ++slot) {
      if (eventIndex(*step.tables, space, slot, step.program().at(wait).space) != index) continue;
      for (int32_t tile = 0; tile < producer.tiles; ++tile)
        if (const Task task{id, slot, tile}; !isDone(task)) tasks.push_back(task);
    }
  }
  return tasks;
}

std::string missingRanks(const Step& step, const EventArray& event, int64_t index, int64_t lack) {
  std::string list;
  const auto owing = owingRanks(step, event, index);
  for (const auto& [rank, rows] : owing)
    join(list, fmt::format("{} rows from rank {}", std::min(rows, lack), rank));
  return owing.size() > 1 ? fmt::format("{} rows, of at most {}", lack, list) : list;
}

std::string missingTasks(const Step& step, EventId wait, int64_t index, const IsDone& isDone) {
  std::string list;
  const std::vector<Task> owing = owingTasks(step, wait, index, isDone);
  for (size_t i = 0; i < std::min(owing.size(), kMaxNamed); ++i) join(list, taskName(step, owing[i]));
  if (owing.size() > kMaxNamed) join(list, fmt::format("{} more", owing.size() - kMaxNamed));
  return list;
}

// "for event rows_arrived[12] (96 of 128 rows) before task up_proj[12,0]; missing: 32 rows from rank 3";
// empty if the task waits for nothing.
std::string describe(const Step& step, const Task& task, const IsDone& isDone) {
  const Wait wait = openWait(step, task);
  if (!wait.event) return {};
  const EventArray& event = step.program().at(wait.event);
  std::string missing =
      event.remote ? missingRanks(step, event, wait.index, static_cast<int64_t>(wait.need - wait.have))
                   : missingTasks(step, wait.event, wait.index, isDone);
  if (missing.empty()) missing = "a signal that no unfinished task owes";
  return fmt::format("for event {}[{}] ({} of {} {}) before task {}; missing: {}", event.name, wait.index,
                     wait.have, wait.need, event.unit == EventUnit::kRows ? "rows" : "tasks",
                     taskName(step, task), missing);
}

}  // namespace

std::string taskName(const Step& step, const Task& task) {
  return fmt::format("{}[{},{}]", step.program().at(task.family).name, task.slot, task.tile);
}

std::string describeWait(const Step& step, const Task& task, std::string_view core, double seconds,
                         const IsDone& isDone) {
  const std::string where = fmt::format("rank {}, {}", step.transport->rank(), core);
  const std::string waiting = describe(step, task, isDone);
  if (waiting.empty())
    return fmt::format("{}: task {} did not run within {:g} s", where, taskName(step, task), seconds);
  return fmt::format("{}: waited {:g} s {}{}", where, seconds, waiting, stoppedRanks(*step.transport));
}

std::string describeLeft(const Step& step, const Task& task, std::string_view core, int left,
                         const IsDone& isDone) {
  return fmt::format("rank {} left while rank {}, {} was still waiting {}", left, step.transport->rank(),
                     core, describe(step, task, isDone));
}

std::string describeAbort(const Step& step, const Task* task, std::string_view core, const IsDone& isDone) {
  std::string message = step.transport->abortMessage();
  if (step.transport->lostRank() < 0) return message;
  const std::string waiting = task ? describe(step, *task, isDone) : std::string();
  if (waiting.empty())
    return message + fmt::format("; rank {} was running entry '{}'", step.transport->rank(),
                                 step.program().at(step.entry).name);
  return message + fmt::format("; rank {}, {}: was waiting {}", step.transport->rank(), core, waiting);
}

int rankThatLeftOwing(const Step& step, const Task& task) {
  for (int rank = 0; rank < step.transport->size(); ++rank) {
    // check this before the counters: then everything that the rank sent has arrived
    if (!step.transport->hasLeft(rank)) continue;
    const Wait wait = openWait(step, task);
    if (!wait.event) return -1;
    const EventArray& event = step.program().at(wait.event);
    if (event.remote && rowsOwed(step, event, wait.index, rank) > 0) return rank;
  }
  return -1;
}

NextTask nextTask(const Step& step, const Task& task, int core, const IsDone& isDone) {
  NextTask next;
  const auto findCoreOfLane = [&](FamilyId family, int number) {
    const LaneId lane = step.plan->at(family).lane;
    return CoreOfLane{lane, step.program().at(lane).firstCore + number};
  };
  next.at = findCoreOfLane(task.family, core);
  next.family = task.family;
  next.slot = task.slot;
  next.tile = task.tile;
  const Wait wait = openWait(step, task);
  if (!wait.event) return next;
  next.event = wait.event;
  next.index = wait.index;
  next.have = wait.have;
  next.need = wait.need;
  if (const EventArray& event = step.program().at(wait.event); event.remote) {
    for (const auto& [rank, rows] : owingRanks(step, event, wait.index)) next.ranks.push_back(rank);
    return next;
  }
  for (const Task& owing : owingTasks(step, wait.event, wait.index, isDone)) {
    const CoreOfLane at = findCoreOfLane(owing.family, findPlace(*step.plan, owing).core);
    if (std::find(next.cores.begin(), next.cores.end(), at) == next.cores.end()) next.cores.push_back(at);
  }
  return next;
}

bool waitsForRanks(const Step& step, const Task& task) {
  const Wait wait = openWait(step, task);
  return wait.event && step.program().at(wait.event).remote;
}

}  // namespace sluice
