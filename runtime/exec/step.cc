#include "runtime/exec/step.h"

namespace sluice {

int64_t rowBytes(const Buffer& buffer) {
  int64_t bytes = dtypeBytes(buffer.type);
  for (size_t d = 1; d < buffer.shape.size(); ++d) bytes *= buffer.shape[d].size;
  return bytes;
}

int taskPeer(const Step& step, SpaceKind space, int64_t slot) {
  return isRemote(space) ? pieceOf(*step.tables, space, slot).peer : step.rank;
}

bool isReady(const Step& step, const Task& task) {
  const FamilyPlan& family = step.plan->at(task.family);
  for (EventId wait : family.waits) {
    if (!wait) continue;
    const EventSpace events = step.program().at(wait).space;
    if (!step.events->isComplete(wait, eventIndex(*step.tables, family.space, task.slot, events)))
      return false;
  }
  return true;
}

Traffic trafficOf(const Step& step) {
  Traffic traffic;
  for (FamilyId id : step.plan->at(step.entry).families) {
    const FamilyPlan& family = step.plan->at(id);
    if (!isRemote(family.space)) continue;
    int64_t bytes = 0;
    for (BufferId buffer : step.program().at(id).writes)
      if (buffer) bytes += rowBytes(step.program().at(buffer));
    int64_t signals = 1;  // of arrivals
    for (EventId signal : family.signals)
      if (signal && step.program().at(signal).remote) ++signals;
    for (int64_t slot = 0; slot < liveSlots(*step.tables, family.space); ++slot) {
      const Piece& piece = pieceOf(*step.tables, family.space, slot);
      if (piece.peer == step.rank) continue;
      ++traffic.pieces;
      traffic.bytes += bytes * piece.rows;
      traffic.signals += signals;
    }
  }
  return traffic;
}

}  // namespace sluice
