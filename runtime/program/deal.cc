#include "runtime/program/deal.h"

#include <fmt/format.h>

#include <utility>

namespace sluice {
namespace {

int64_t tasksIn(const Seats& seats) {
  int64_t tasks = 0;
  for (const std::vector<TaskRecord>& seat : seats) tasks += static_cast<int64_t>(seat.size());
  return tasks;
}

}  // namespace

Deal dealTasks(FamilyId family, int32_t window, int32_t tiles, int32_t seats) {
  Deal deal;
  deal.seats.resize(static_cast<size_t>(seats));
  int32_t seat = 0;
  for (int32_t slot = 0; slot < window; ++slot)
    for (int32_t tile = 0; tile < tiles; ++tile) {
      deal.seats[static_cast<size_t>(seat)].push_back(
          {family, static_cast<uint32_t>(slot), static_cast<uint32_t>(tile)});
      seat = seat + 1 == seats ? 0 : seat + 1;
    }
  deal.rotation = seat;
  return deal;
}

FamilyId Dealer::familyInLane(const Lane& lane) {
  if (lane.seats.empty() || lane.seats[0].empty()) return {};
  const FamilyId family = lane.seats[0][0].family;
  if (family.value >= program_.families.size() || lane.space.value >= program_.spaces.size()) return {};
  const int32_t window = program_.at(lane.space).window, tiles = program_.at(family).tiles;
  if (window < 1 || tiles < 1) return {};
  const auto seats = static_cast<int32_t>(lane.seats.size());
  const int64_t tasks = int64_t{window} * tiles, size = tasks + seats;
  // a lane with another number of tasks is refused before memory for a window is taken
  if (size > left_ || tasksIn(lane.seats) != tasks) return {};
  if (lane.seats != dealTasks(family, window, tiles, seats).seats) return {};
  left_ -= size;
  return family;
}

Expected<Seats> Dealer::deal(SpaceId space, FamilyId family, int32_t seats) {
  if (family.value >= program_.families.size())
    return Error{fmt::format("deals tasks of family {}, but the program declares {} families", family.value,
                             program_.families.size())};
  if (space.value >= program_.spaces.size())
    return Error{fmt::format("deals tasks in space {}, but the program declares {} spaces", space.value,
                             program_.spaces.size())};
  const int64_t window = program_.at(space).window, tiles = program_.at(family).tiles;
  if (window < 1 || tiles < 1 || seats < 1)
    return Error{fmt::format("deals {} slots x {} tiles to {} seats, expected at least 1 of each", window,
                             tiles, seats)};
  const int64_t size = window * tiles + seats;
  if (size > left_)
    return Error{
        fmt::format("deals {} slots x {} tiles to {} seats, expected at most {} tasks and seats in "
                    "all lanes together",
                    window, tiles, seats, kMaxDealt)};
  left_ -= size;
  return dealTasks(family, static_cast<int32_t>(window), static_cast<int32_t>(tiles), seats).seats;
}

}  // namespace sluice
