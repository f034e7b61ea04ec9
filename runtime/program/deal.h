// Deal: the formula by which tasks of a family go to the seats of its lane. A file or a text says only that a
// lane follows it; in memory every lane has its seats.
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
// core after the last one dealt to, so that the load is even to one task over any number of windows. All
// numbers are at least 1.
Deal dealTasks(FamilyId family, int32_t window, int32_t tiles, int32_t seats);

// Tasks and seats of all lanes of a program that are dealt by the formula, so that a few bytes cannot ask for
// much memory. Other lanes are stored as they are.
inline constexpr int64_t kMaxDealt = 1 << 18;

// Goes through the lanes of a program in their order: when it is written, and when it is read.
class Dealer {
 public:
  explicit Dealer(const TaskProgram& program) : program_(program) {}

  // The family by which the seats of the lane can be dealt, or none.
  FamilyId familyOf(const Lane& lane);

  // The seats of a lane in `space`. Errors: ids that the program does not declare, numbers below 1, or more
  // than kMaxDealt in all.
  Expected<Seats> deal(SpaceId space, FamilyId family, int32_t seats);

 private:
  const TaskProgram& program_;
  int64_t left_ = kMaxDealt;
};

}  // namespace sluice
