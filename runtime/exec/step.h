// Step: one run of one entry at one rank, as tasks see it. Made by bind, immutable while tasks run.
#pragma once

#include <span>
#include <vector>

#include "runtime/exec/event_table.h"
#include "runtime/exec/plan.h"
#include "runtime/exec/work.h"
#include "runtime/routing/routing.h"

namespace sluice {

// The address of element i of a buffer's first dimension: data + i * stride.
struct BufferAddress {
  std::byte* data = nullptr;
  int64_t stride = 0;      // bytes
  SymmetricHandle handle;  // symmetric buffers only, and
  int64_t offset = 0;      // of element 0 in that allocation, at every rank
};

struct Task {
  FamilyId family;
  int64_t slot = 0;  // absolute
  int32_t tile = 0;
};

class WeightPanels;

struct Step {
  const Plan* plan = nullptr;
  Transport* transport = nullptr;
  EventTable* events = nullptr;
  const RoutingTables* tables = nullptr;
  EntryId entry;
  std::vector<BufferAddress> buffers;  // by BufferId
  WeightPanels* panels = nullptr;      // null where no weight is packed
  WorkKind work = WorkKind::kAll;

  const TaskProgram& program() const { return plan->program(); }
  const BufferAddress& at(BufferId id) const { return buffers[id.value]; }
};

// Bytes of one element of the buffer's first dimension, without gaps.
int64_t rowBytes(const Buffer& buffer);

// The rank that a task of `space` signals and writes to: the piece's peer, else this rank.
int taskPeer(const Step& step, SpaceKind space, int64_t slot);

// All waits of the task are complete.
bool isReady(const Step& step, const Task& task);

// Runs the task's kernel where it is of the step's work, then signals. `scratch` has Plan::scratchBytes(),
// 64-byte aligned.
void runTask(const Step& step, const Task& task, std::byte* scratch);

Traffic trafficOf(const Step& step);

}  // namespace sluice
