// Plan: a verified program with all derived data that does not change between steps.
//
// Immutable after make(); shared by any number of threads.
#pragma once

#include <vector>

#include "runtime/program/op_table.h"
#include "runtime/program/verify.h"
#include "runtime/routing/routing.h"

namespace sluice {

// What all tasks of a family have in common.
struct FamilyPlan {
  SpaceKind space = SpaceKind::kRows;
  LaneId lane;
  Operands operands;
};

struct EntryPlan {
  std::vector<LaneId> lanes;        // by priority
  std::vector<FamilyId> families;   // by (segment, stage)
  std::vector<BufferId> reads;      // the caller's inputs that the entry's tasks read, and its expert ids
  std::vector<BufferId> writes;     // outputs of the caller
  std::vector<EntryId> savedFrom;   // entries that write saved buffers read here, and the entry that routes
  std::vector<BufferId> rowWrites;  // outputs of rows that only this rank writes: the caller may bind them
  EntryId routing;                  // the entry that routes: possibly the entry itself
  EntryId tables;        // the entry for which the tables that it uses are made: if it takes the slots in
                         // the same order as `routing` does, that one, else the entry itself
  bool ownLast = false;  // takesOwnLast() of space_table.h
  std::vector<EntryId> savedFor;  // entries that read what this one saves, and those that read what they save
};

class Plan {
 public:
  static Plan make(VerifiedProgram program);

  const TaskProgram& program() const { return *verified_; }
  const VerifiedProgram& verified() const { return verified_; }
  const RoutingShape& routingShape() const { return shape_; }
  const FamilyPlan& at(FamilyId id) const { return families_[id.value]; }
  const EntryPlan& at(EntryId id) const { return entries_[id.value]; }

  // Window and slot size of a space kind; null if the program has no such space.
  const Space* space(SpaceKind kind) const;

  // The largest number of units that an extent or an event space can have in any step, at any rank, because
  // memory to which other ranks write has the same size at all ranks.
  int64_t maxExtent(Extent extent) const;
  int64_t maxEvents(EventSpace space) const;

 private:
  explicit Plan(VerifiedProgram program) : verified_(std::move(program)) {}
  void deriveFamilies();
  void deriveEntries();
  void deriveSavedFor();

  VerifiedProgram verified_;
  RoutingShape shape_;
  std::vector<FamilyPlan> families_;
  std::vector<EntryPlan> entries_;
};

}  // namespace sluice
