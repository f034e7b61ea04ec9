#include "runtime/exec/step.h"

#include "runtime/cpu/kernel_call.h"
#include "runtime/program/space_table.h"

namespace sluice {

int64_t rowBytes(const Buffer& buffer) {
  int64_t bytes = dtypeBytes(buffer.type);
  for (size_t d = 1; d < buffer.shape.size(); ++d) bytes *= buffer.shape[d].size;
  return bytes;
}

int taskPeer(const Step& step, SpaceKind space, int64_t slot) {
  return isRemote(space) ? pieceOf(*step.tables, space, slot).peer : step.transport->rank();
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

void runTask(const Step& step, const Task& task, std::byte* scratch) {
  const FamilyPlan& family = step.plan->at(task.family);
  const bool pieces = isRemote(family.space);
  if (step.work == WorkKind::kAll || (step.work == WorkKind::kCommunication) == pieces)
    callKernel(step, task, scratch);
  const uint64_t rows = pieces ? pieceOf(*step.tables, family.space, task.slot).rows : 0;
  const int peer = taskPeer(step, family.space, task.slot);
  // before the event: when the last event is complete, no arrival is still on its way
  if (pieces) step.events->countArrival(peer, family.space, rows);
  for (EventId signal : family.signals) {
    if (!signal) continue;
    const EventArray& event = step.program().at(signal);
    const int64_t index = eventIndex(*step.tables, family.space, task.slot, event.space);
    step.events->signal(event.remote ? peer : step.transport->rank(), signal, index,
                        event.unit == EventUnit::kRows ? rows : 1);
  }
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
      if (piece.peer == step.transport->rank()) continue;
      ++traffic.pieces;
      traffic.bytes += bytes * piece.rows;
      traffic.signals += signals;
    }
  }
  return traffic;
}

}  // namespace sluice
