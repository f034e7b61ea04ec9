// Links between the tasks of a step: who adds to an event that a task waits for, and who waits for one to
// which it adds, at all ranks.
//
// Value types and free functions of values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/exec/lane_cursor.h"
#include "runtime/exec/plan.h"
#include "runtime/exec/step.h"
#include "runtime/sim/bind_all.h"

namespace sluice::tools {

// A step of one entry at all ranks, as simulated: the tables that bind makes.
struct AllSteps {
  const Plan& plan;
  EntryId entry;
  const AllTables& tables;

  const TaskProgram& program() const { return plan.program(); }
  // The step of a rank, without events.
  Step at(int rank) const;
};

// An event word of a rank.
struct EventAt {
  int rank = 0;
  EventId event;
  int64_t index = 0;
};

// Tasks of one slot of a family, all its tiles.
struct SlotTasks {
  int rank = 0;
  FamilyId family;
  int64_t slot = 0;
  int64_t amount = 0;  // that each of them adds to the event
};

// What the task of `rank` waits for, and what it adds to.
std::vector<EventAt> listWaits(const AllSteps& steps, int rank, const Task& task);
std::vector<EventAt> listSignals(const AllSteps& steps, int rank, const Task& task);

uint64_t findThreshold(const AllSteps& steps, const EventAt& at);

// By rank, then in the order of the entry's families and slots.
std::vector<SlotTasks> listProducers(const AllSteps& steps, const EventAt& at);
std::vector<SlotTasks> waitersFor(const AllSteps& steps, const EventAt& at);

}  // namespace sluice::tools
