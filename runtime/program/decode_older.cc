#include "runtime/program/decode_older.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "runtime/program/op_table.h"

namespace sluice {
namespace {

// The first version in which families have waits and signals, and tilings have fields of the activation.
constexpr uint16_t kMinorOfLinks = 4;

// Before it the flags of an op with an activation held its kind, and its limit where roundings are now.
constexpr uint16_t kActivationBits = 3;

std::vector<EventId> readLinks(const flatbuffers::Array<uint32_t, 2>& stored) {
  std::vector<EventId> ids = {EventId{stored[0]}, EventId{stored[1]}};
  while (!ids.empty() && ids.back().none()) ids.pop_back();
  return ids;
}

std::string taskLabel(const Family& family, const TaskRecord& task) {
  return fmt::format("{}[{},{}]", family.name, task.slot, task.tile);
}

}  // namespace

bool isOlder(const fbs::Program& stored) { return stored.seal()->minor() < kMinorOfLinks; }

Tiling liftActivation(Tiling tiling, OpKind op) {
  if (!findInfo(op).usesActivation()) return tiling;
  tiling.activation = static_cast<ActivationKind>(tiling.flags & kActivationBits);
  tiling.limit = std::bit_cast<BFloat16>(std::array{tiling.roundA, tiling.roundB});
  tiling.flags &= static_cast<uint16_t>(~kActivationBits);
  tiling.roundA = tiling.roundB = Rounding::kNone;
  return tiling;
}

Expected<Seats> LinkLifter::lift(const std::vector<std::vector<fbs::LinkedRecord>>& seats) {
  Seats lifted(seats.size());
  for (size_t seat = 0; seat < seats.size(); ++seat)
    for (const fbs::LinkedRecord& linked : seats[seat]) {
      const TaskRecord task{FamilyId{linked.family()}, linked.slot(), linked.tile()};
      if (const std::string wrong = take(linked, task); !wrong.empty())
        return Error{fmt::format("task {} of seat {} {}", lifted[seat].size(), seat, wrong)};
      lifted[seat].push_back(task);
    }
  return lifted;
}

std::string LinkLifter::take(const fbs::LinkedRecord& linked, const TaskRecord& task) {
  if (linked.flags() != 0) return fmt::format("has flags {:#x}, expected 0", linked.flags());
  if (task.family.value >= program_.families.size())
    return fmt::format("belongs to family {}, but the program declares {} families", task.family.value,
                       program_.families.size());
  Family& family = program_.families[task.family.value];
  std::optional<TaskRecord>& first = first_[task.family.value];
  std::vector<EventId> waits = readLinks(*linked.waits()), signals = readLinks(*linked.signals());
  if (!first) {
    first = task;
    family.waits = std::move(waits);
    family.signals = std::move(signals);
    return {};
  }
  const auto differs = [&](const char* verb, const auto& found, const auto& expected) {
    return fmt::format("is {} and {} {}, expected {} as for {}, the first task of family '{}'",
                       taskLabel(family, task), verb, formatEvents(found), formatEvents(expected),
                       taskLabel(family, *first), family.name);
  };
  if (waits != family.waits) return differs("waits for", waits, family.waits);
  return signals != family.signals ? differs("signals", signals, family.signals) : std::string();
}

// "events 'a' and 'b'"
std::string LinkLifter::formatEvents(const std::vector<EventId>& ids) const {
  std::string list;
  for (EventId id : ids) {
    const bool known = id.value < program_.events.size();
    list += list.empty() ? "" : " and ";
    list += known ? fmt::format("'{}'", program_.at(id).name) : fmt::format("event {}", id.value);
  }
  return list.empty() ? "nothing" : list;
}

}  // namespace sluice
