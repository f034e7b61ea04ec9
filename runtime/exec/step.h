// Step: one run of one entry at one rank, as tasks see it. Made by bind, immutable while tasks run. Also a
// task's rows, waits, signals and operands.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "runtime/base/dtype.h"
#include "runtime/exec/event_table.h"
#include "runtime/exec/plan.h"
#include "runtime/program/space_table.h"
#include "runtime/routing/routing.h"
#include "runtime/routing/rows.h"

namespace sluice {

// The kernels that a run calls, to measure how far communication and computation overlap. A task whose kernel
// is not called signals as if it had run, so a run of part of the work waits and ends like a full run. Its
// outputs and saved tensors are then not the layer's results.
enum class WorkKind : uint8_t {
  kAll,
  kCommunication,  // only of sends and returns: rows are copied, nothing is computed
  kCompute,        // only of all other tasks: nothing is copied to other ranks
};

// The data that one step of a rank sends to other ranks.
struct Traffic {
  int64_t pieces = 0;   // a piece is the rows that one task sends
  int64_t bytes = 0;    // of all pieces
  int64_t signals = 0;  // to events, and to the counts for reports
};

// The address of element i of a buffer's first dimension: data + i * stride.
struct BufferAddress {
  std::byte* data = nullptr;
  int64_t stride = 0;      // bytes
  SymmetricHandle handle;  // symmetric buffers only
  int64_t offset = 0;      // likewise: of element 0 in that allocation, at every rank
};

struct Task {
  FamilyId family;
  int64_t slot = 0;  // absolute
  int32_t tile = 0;

  bool operator==(const Task&) const = default;
};

// A value that refers to data made by bind: valid until the next step of the rank.
struct Step {
  const Plan* plan = nullptr;
  int rank = 0;
  Transport* transport = nullptr;  // to the other ranks; null in a simulation without one
  EventTable* events = nullptr;
  const RoutingTables* tables = nullptr;
  EntryId entry;
  std::span<const BufferAddress> buffers;  // by BufferId
  WorkKind work = WorkKind::kAll;

  const TaskProgram& program() const { return plan->program(); }
  const BufferAddress& at(BufferId id) const { return buffers[id.value]; }
  const Operands& operands(const Task& task) const { return plan->at(task.family).operands; }
};

// Bytes per index of the buffer's first dimension, without gaps.
int64_t rowBytes(const Buffer& buffer);

// The number of units that an extent has in a step with these tables at that rank; kFixed: 1.
int64_t countElements(const Plan& plan, int rank, Extent extent, const RoutingTables& tables);

// The size of the buffer's first dimension in the step.
int64_t measureLength(const Step& step, BufferId id);

// Bytes that a task of sends or returns writes for each row of its piece.
int64_t pieceRowBytes(const TaskProgram& program, const Family& family);

// The rank that a task of `space` signals and writes to: the piece's peer, else this rank.
int taskPeer(const Step& step, SpaceKind space, int64_t slot);

// The rows of a task.
inline RowRange findRows(const Step& step, const Task& task) {
  const SpaceKind space = step.plan->at(task.family).space;
  // only tokens need the size; it costs more to find than all else here
  const int32_t slotSize = space == SpaceKind::kTokens ? step.plan->space(space)->slotSize : 0;
  return findRows(*step.tables, space, task.slot, slotSize);
}

// Whether all waits of the task are complete.
bool isReady(const Step& step, const Task& task);

// Whether the step's work includes the task's kernel. Its signals are always sent.
inline bool hasKernelToRun(const Step& step, const Task& task) {
  if (step.work == WorkKind::kAll) return true;
  return (step.work == WorkKind::kCommunication) == isRemote(step.plan->at(task.family).space);
}

// Calls add(rank, word, n), in this order, for every event word (EventTable) to which the end of the task
// adds n.
template <class Add>
void forSignals(const Step& step, const Task& task, const Add& add) {
  const SpaceKind space = step.plan->at(task.family).space;
  const bool pieces = isRemote(space);
  const uint64_t rows = pieces ? findPiece(*step.tables, space, task.slot).rows : 0;
  const int peer = taskPeer(step, space, task.slot);
  // arrivals before the event, so that all of them have been counted when the last event is complete
  if (pieces) add(peer, step.events->arrivalWord(space, step.rank), rows);
  for (EventId signal : step.program().at(task.family).signals) {
    const EventArray& event = step.program().at(signal);
    const int64_t index = eventIndex(*step.tables, space, task.slot, event.space);
    add(event.remote ? peer : step.rank, step.events->word(signal, index),
        event.unit == EventUnit::kRows ? rows : 1);
  }
}

Traffic countTraffic(const Step& step);

// Operands of a task in the form that kernels take: addresses of elements.
template <class T>
T* elements(const BufferAddress& address, int64_t row) {
  return reinterpret_cast<T*>(address.data + row * address.stride);
}

template <class T>
int64_t leading(const BufferAddress& address) {
  return address.stride / static_cast<int64_t>(sizeof(T));
}

// Whether what all ranks of a group have whole counts in this rank's `result`: if that is one of the terms of
// a sum, at shard 0 only.
inline bool countsOnce(const Step& step, BufferId result) {
  return step.program().at(result).sharding != Sharding::kPartial ||
         step.program().mesh.shardOf(step.rank) == 0;
}

// The columns from `column` on of the bias for `expert`, which has `width` of them; null where the operand is
// absent, or where `result` is one of the terms of a sum and another rank adds the bias to its own.
template <class T = BFloat16>
const T* findBias(const Step& step, BufferId bias, BufferId result, int32_t expert, int64_t width,
                  int32_t column) {
  if (!bias || !countsOnce(step, result)) return nullptr;
  return elements<T>(step.at(bias), 0) + expert * width + column;
}

// Row `row` of an optional vector; null where the operand is absent.
inline float* optionalFloats(const Step& step, BufferId buffer, int64_t row) {
  return buffer ? elements<float>(step.at(buffer), row) : nullptr;
}

}  // namespace sluice
