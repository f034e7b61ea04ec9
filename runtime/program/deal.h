// Deal: the formula that assigns the tasks of a family to the seats of its lane. For a lane that follows it,
// a file or a text states only that; in memory every lane has its seats.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice {

using Seats = std::vector<std::vector<TaskRecord>>;

struct Deal {
  Seats seats;           // by slot, then tile
  int32_t rotation = 0;  // of the lane
};

// Task (slot, tile) of a window goes to seat (slot * tiles + tile) mod `seats`; the next window starts at the
// core after the last one that received a task, so that the loads of cores differ by at most one task over
// any number of windows. All numbers are at least 1.
Deal dealTasks(FamilyId family, int32_t window, int32_t tiles, int32_t seats);

// The limit of tasks and seats in all lanes of a program that are dealt by the formula, so that a few bytes
// cannot request much memory. Lanes above it are stored with their tables.
inline constexpr int64_t kMaxDealt = 1 << 18;

// Visits the lanes of a program in their order, when it is written and when it is read.
class Dealer {
 public:
  explicit Dealer(const TaskProgram& program) : program_(program) {}

  // The family whose tasks, dealt by the formula, are the seats of the lane; or none.
  FamilyId familyInLane(const Lane& lane);

  // The seats of a lane in `space`. Errors: ids that the program does not declare, numbers below 1, or more
  // than kMaxDealt in all.
  Expected<Seats> deal(SpaceId space, FamilyId family, int32_t seats);

 private:
  const TaskProgram& program_;
  int64_t left_ = kMaxDealt;
};

}  // namespace sluice
