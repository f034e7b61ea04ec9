#include "runtime/exec/step.h"

#include <algorithm>

namespace sluice {

int64_t rowBytes(const Buffer& buffer) {
  int64_t bytes = dtypeBytes(buffer.type);
  for (size_t d = 1; d < buffer.shape.size(); ++d) bytes *= buffer.shape[d].size;
  return bytes;
}

int64_t countElements(const Plan& plan, int rank, Extent extent, const RoutingTables& tables) {
  switch (extent) {
    case Extent::kFixed:
      return 1;
    case Extent::kTokens:
      return tables.tokens;
    case Extent::kRows:
      return tables.rows;
    case Extent::kPairs:
      return tables.returned;
    case Extent::kExperts:
      return plan.program().countExperts(rank);
  }
  return 0;
}

int64_t measureLength(const Step& step, BufferId id) {
  const Dim& first = step.program().at(id).shape.front();
  return first.extent == Extent::kFixed ? first.size
                                        : countElements(*step.plan, step.rank, first.extent, *step.tables);
}

int64_t pieceRowBytes(const TaskProgram& program, const Family& family) {
  int64_t bytes = 0;
  for (BufferId buffer : family.writes)
    if (buffer) bytes += rowBytes(program.at(buffer));
  return bytes;
}

int taskPeer(const Step& step, SpaceKind space, int64_t slot) {
  return isRemote(space) ? findPiece(*step.tables, space, slot).peer : step.rank;
}

bool isReady(const Step& step, const Task& task) {
  const SpaceKind space = step.plan->at(task.family).space;
  const std::vector<EventId>& waits = step.program().at(task.family).waits;
  return std::all_of(waits.begin(), waits.end(), [&](EventId wait) {
    const EventSpace events = step.program().at(wait).space;
    return step.events->isComplete(wait, eventIndex(*step.tables, space, task.slot, events));
  });
}

Traffic countTraffic(const Step& step) {
  Traffic traffic;
  for (FamilyId id : step.plan->at(step.entry).families) {
    const SpaceKind space = step.plan->at(id).space;
    if (!isRemote(space)) continue;
    const Family& family = step.program().at(id);
    const int64_t bytes = pieceRowBytes(step.program(), family);
    int64_t signals = 1;  // for arrivals
    for (EventId signal : family.signals)
      if (step.program().at(signal).remote) ++signals;
    for (int64_t slot = 0; slot < liveSlots(*step.tables, space); ++slot) {
      const Piece& piece = findPiece(*step.tables, space, slot);
      if (piece.peer == step.rank) continue;
      ++traffic.pieces;
      traffic.bytes += bytes * piece.rows;
      traffic.signals += signals;
    }
  }
  return traffic;
}

}  // namespace sluice
