// verify: from a TaskProgram that may hold anything to a VerifiedProgram that executors take.
//
// The proof holds for every routing, because it is made per family and not per task instance:
//   structure   ids, ranges, shapes and tilings fit their ops; every (slot, tile) is in the tables once
//   thresholds  an event's threshold is what its producers deliver
//   writes      every element of a buffer has one writer in an entry
//   order       a read comes after the writes it needs; a region is reused after its last reader
//   no hang     lanes are sorted by key and every event leads to a larger key (docs/SCHEDULE.md)
#pragma once

#include <memory>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice {

// key(task) = (segment, window, stage, slot): the order in which one thread may run all tasks of all
// families of an entry without ever waiting for a later one.
struct FamilyOrder {
  int32_t segment = 0;  // largest number of wide events on any path to the family
  int32_t stage = 0;    // topological number inside the segment
  friend auto operator<=>(const FamilyOrder&, const FamilyOrder&) = default;
};

// A program that passed verify(); immutable, shared by any number of threads.
class VerifiedProgram {
 public:
  const TaskProgram& operator*() const { return *program_; }
  const TaskProgram* operator->() const { return program_.get(); }

  // Indexed by FamilyId.
  const std::vector<FamilyOrder>& order() const { return order_; }

  // Equal for equal programs: ranks compare it before they exchange anything else.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  friend Expected<VerifiedProgram> verify(TaskProgram program);
  std::shared_ptr<const TaskProgram> program_;
  std::vector<FamilyOrder> order_;
  uint64_t fingerprint_ = 0;
};

// The error names family, task, event and core where they apply.
Expected<VerifiedProgram> verify(TaskProgram program);

}  // namespace sluice
