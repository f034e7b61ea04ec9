// Lanes: every record is in range, every (slot, tile) of a family is in one record, and seats are sorted by
// key.
#include <algorithm>

#include "runtime/program/verify_internal.h"

namespace sluice::verify_parts {
namespace {

// The place of a record, for messages.
struct Place {
  const TaskProgram& program;
  const Lane& lane;
  size_t core;  // counted from the first of the lane
  size_t task;

  std::string text() const {
    const auto number = static_cast<int64_t>(lane.firstCore) + static_cast<int64_t>(core);
    return fmt::format("task {} of {} in lane '{}'", task, text::coreName(lane.core, number), lane.name);
  }
};

// A lane is for neighbouring cores of one kind, all or some of those that the program has.
Status checkSeats(const TaskProgram& program, const Lane& lane) {
  if (lane.core > CoreKind::MAX)
    return fail("lane '{}': core kind {} is not known", lane.name, static_cast<int>(lane.core));
  const int64_t cores = program.coreCount(lane.core), first = lane.firstCore;
  const auto seats = static_cast<int64_t>(lane.seats.size());
  const std::string kind = text::word(lane.core);
  if (cores == 0) return fail("lane '{}' is for {} cores, but the program has none", lane.name, kind);
  if (first < 0 || first >= cores)
    return fail("lane '{}' begins at core {}, expected 0 to {}", lane.name, first, cores - 1);
  if (seats < 1 || seats > cores - first)
    return fail("lane '{}' has {} seats from core {} on, but the program has {} {} cores", lane.name, seats,
                first, cores, kind);
  if (lane.rotation < 0 || lane.rotation >= seats)
    return fail("lane '{}' has rotation {}, expected 0 to {}", lane.name, lane.rotation, seats - 1);
  return {};
}

Status checkLane(const TaskProgram& program, uint32_t index) {
  const Lane& lane = program.lanes[index];
  if (!inRange(lane.entry, program.entries))
    return fail("lane '{}' belongs to entry {}, but the program declares {} entries", lane.name,
                lane.entry.value, program.entries.size());
  if (!inRange(lane.space, program.spaces))
    return fail("lane '{}' is in space {}, but the program declares {} spaces", lane.name, lane.space.value,
                program.spaces.size());
  if (Status status = checkSeats(program, lane); !status) return status;
  const bool empty =
      std::all_of(lane.seats.begin(), lane.seats.end(), [](auto& seat) { return seat.empty(); });
  if (empty) return fail("lane '{}' has no tasks", lane.name);
  return {};
}

Status checkRecord(const Place& place, const TaskRecord& record) {
  const TaskProgram& program = place.program;
  if (!inRange(record.family, program.families))
    return fail("{} belongs to family {}, but the program declares {} families", place.text(),
                record.family.value, program.families.size());
  const Family& family = program.at(record.family);
  if (family.entry != place.lane.entry || family.space != place.lane.space || family.core != place.lane.core)
    return fail("{} belongs to {}, which has another entry, space or core kind than the lane", place.text(),
                fullName(program, record.family));
  const int64_t window = program.at(family.space).window;
  if (record.slot >= window)
    return fail("{} is slot {} of family '{}', but a window has {} slots", place.text(), record.slot,
                family.name, window);
  if (record.tile >= static_cast<uint32_t>(family.tiles))
    return fail("{} is tile {} of family '{}', which has {} tiles", place.text(), record.tile, family.name,
                family.tiles);
  return {};
}

template <class Visit>
Status forEachRecord(const TaskProgram& program, Visit visit) {
  for (const Lane& lane : program.lanes)
    for (size_t core = 0; core < lane.seats.size(); ++core)
      for (size_t task = 0; task < lane.seats[core].size(); ++task)
        if (Status status = visit(Place{program, lane, core, task}, lane.seats[core][task]); !status)
          return status;
  return {};
}

// The records of one family that have been seen so far.
struct Collected {
  LaneId lane;
  int64_t count = 0;
  std::vector<bool> seen;  // by slot * tiles + tile
};

Status collectRecord(const Place& place, const TaskRecord& record, Collected& found) {
  const LaneId lane{static_cast<uint32_t>(&place.lane - place.program.lanes.data())};
  if (found.count++ == 0) found.lane = lane;
  if (found.lane == lane) return {};
  return fail("{} belongs to family '{}', which also has tasks in lane '{}'", place.text(),
              place.program.at(record.family).name, place.program.at(found.lane).name);
}

}  // namespace

Status checkLanes(const TaskProgram& program) {
  for (uint32_t i = 0; i < program.lanes.size(); ++i)
    if (Status status = checkLane(program, i); !status) return status;

  std::vector<Collected> found(program.families.size());
  Status status = forEachRecord(program, [&](const Place& place, const TaskRecord& record) -> Status {
    if (Status checked = checkRecord(place, record); !checked) return checked;
    return collectRecord(place, record, found[record.family.value]);
  });
  if (!status) return status;

  // With as many records as tasks, no duplicate means none missing; and the bits take less memory than the
  // records.
  for (uint32_t i = 0; i < program.families.size(); ++i) {
    const Family& family = program.families[i];
    const int64_t window = program.at(family.space).window;
    if (found[i].count != window * family.tiles)
      return fail("{} has {} tasks in the lanes, expected {} slots x {} tiles",
                  fullName(program, FamilyId{i}), found[i].count, window, family.tiles);
    found[i].seen.resize(found[i].count);
  }
  return forEachRecord(program, [&](const Place& place, const TaskRecord& record) -> Status {
    const Family& family = program.at(record.family);
    auto seen = found[record.family.value].seen[int64_t{record.slot} * family.tiles + record.tile];
    if (seen)
      return fail("{} is {}[{},{}] for the second time", place.text(), family.name, record.slot, record.tile);
    seen = true;
    return {};
  });
}

Status checkLaneOrder(const TaskProgram& program, const std::vector<FamilyOrder>& order) {
  // Windows of a lane run one after the other: all its families must be of one segment.
  std::vector<FamilyId> first(program.lanes.size());
  Status status = forEachRecord(program, [&](const Place& place, const TaskRecord& record) -> Status {
    FamilyId& family = first[&place.lane - program.lanes.data()];
    if (family.none()) family = record.family;
    const int32_t expected = order[family.value].segment, segment = order[record.family.value].segment;
    if (segment != expected)
      return fail(
          "{} belongs to family '{}' of segment {}, but family '{}' of the same lane is of segment {}",
          place.text(), program.at(record.family).name, segment, program.at(family).name, expected);
    if (place.task == 0) return {};
    const TaskRecord& before = place.lane.seats[place.core][place.task - 1];
    const auto key = [&order](const TaskRecord& r) { return std::pair(order[r.family.value], r.slot); };
    if (key(before) <= key(record)) return {};
    return fail("{} is {}[{},{}], which must stand before {}[{},{}]", place.text(),
                program.at(record.family).name, record.slot, record.tile, program.at(before.family).name,
                before.slot, before.tile);
  });
  return status;
}

}  // namespace sluice::verify_parts
