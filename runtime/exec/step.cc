#include "runtime/exec/step.h"

#include "runtime/exec/kernel_call.h"

namespace sluice {
namespace {

const Piece& pieceOf(const Step& step, SpaceKind space, int64_t slot) {
  return space == SpaceKind::kSends ? step.tables->sends[slot] : step.tables->returns[slot];
}

bool isPieces(SpaceKind space) { return space == SpaceKind::kSends || space == SpaceKind::kReturns; }

}  // namespace

int64_t rowBytes(const Buffer& buffer) {
  int64_t bytes = dtypeBytes(buffer.type);
  for (size_t d = 1; d < buffer.shape.size(); ++d) bytes *= buffer.shape[d].size;
  return bytes;
}

int64_t liveSlots(const Step& step, SpaceKind space) {
  const RoutingTables& tables = *step.tables;
  switch (space) {
    case SpaceKind::kTokens:
      return ceilDiv(tables.tokens, step.plan->space(space)->slotSize);
    case SpaceKind::kRows:
      return static_cast<int64_t>(tables.slots.size());
    case SpaceKind::kSends:
      return static_cast<int64_t>(tables.sends.size());
    case SpaceKind::kReturns:
      return static_cast<int64_t>(tables.returns.size());
    case SpaceKind::kExperts:
      return tables.experts();
    case SpaceKind::kOnce:
      return 1;
    case SpaceKind::kGroups:
      return static_cast<int64_t>(tables.groups.size());
  }
  return 0;
}

int64_t eventIndex(const Step& step, SpaceKind space, int64_t slot, EventSpace events) {
  switch (events) {
    case EventSpace::kOne:
      return 0;
    case EventSpace::kTokens:
      return slot;
    case EventSpace::kGroups:
      if (space == SpaceKind::kGroups) return slot;
      return isPieces(space) ? pieceOf(step, space, slot).group : step.tables->groupOf[slot];
    case EventSpace::kRows:
      return isPieces(space) ? pieceOf(step, space, slot).slot : slot;
    case EventSpace::kExperts:
      if (space == SpaceKind::kExperts) return slot;
      if (space == SpaceKind::kGroups) return step.tables->groups[slot].expert;
      return isPieces(space) ? pieceOf(step, space, slot).expert : step.tables->slots[slot].expert;
  }
  return 0;
}

int taskPeer(const Step& step, SpaceKind space, int64_t slot) {
  return isPieces(space) ? pieceOf(step, space, slot).peer : step.transport->rank();
}

bool isReady(const Step& step, const Task& task) {
  const FamilyPlan& family = step.plan->at(task.family);
  for (EventId wait : family.waits) {
    if (!wait) continue;
    const EventSpace events = step.program().at(wait).space;
    if (!step.events->isComplete(wait, eventIndex(step, family.space, task.slot, events))) return false;
  }
  return true;
}

void runTask(const Step& step, const Task& task, std::byte* scratch) {
  const FamilyPlan& family = step.plan->at(task.family);
  const bool pieces = isPieces(family.space);
  if (step.work == WorkKind::kAll || (step.work == WorkKind::kCommunication) == pieces)
    callKernel(step, task, scratch);
  const uint64_t rows = pieces ? pieceOf(step, family.space, task.slot).rows : 0;
  const int peer = taskPeer(step, family.space, task.slot);
  // before the event: when the last event is complete, no arrival is still on its way
  if (pieces) step.events->countArrival(peer, family.space, rows);
  for (EventId signal : family.signals) {
    if (!signal) continue;
    const EventArray& event = step.program().at(signal);
    const int64_t index = eventIndex(step, family.space, task.slot, event.space);
    step.events->signal(event.remote ? peer : step.transport->rank(), signal, index,
                        event.unit == EventUnit::kRows ? rows : 1);
  }
}

Traffic trafficOf(const Step& step) {
  Traffic traffic;
  for (FamilyId id : step.plan->at(step.entry).families) {
    const FamilyPlan& family = step.plan->at(id);
    if (!isPieces(family.space)) continue;
    int64_t bytes = 0;
    for (BufferId buffer : step.program().at(id).writes)
      if (buffer) bytes += rowBytes(step.program().at(buffer));
    int64_t signals = 1;  // of arrivals
    for (EventId signal : family.signals)
      if (signal && step.program().at(signal).remote) ++signals;
    for (int64_t slot = 0; slot < liveSlots(step, family.space); ++slot) {
      const Piece& piece = pieceOf(step, family.space, slot);
      if (piece.peer == step.transport->rank()) continue;
      ++traffic.pieces;
      traffic.bytes += bytes * piece.rows;
      traffic.signals += signals;
    }
  }
  return traffic;
}

}  // namespace sluice
