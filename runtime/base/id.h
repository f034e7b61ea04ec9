// Id<Tag>: an index into one table of a program, typed so that an event cannot be used as a buffer.
//
// Value type. kNone marks an absent optional reference.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace sluice {

template <class Tag>
struct Id {
  static constexpr uint32_t kNoneValue = std::numeric_limits<uint32_t>::max();

  uint32_t value = kNoneValue;

  constexpr bool none() const { return value == kNoneValue; }
  constexpr explicit operator bool() const { return !none(); }
  friend constexpr auto operator<=>(const Id&, const Id&) = default;
};

using BufferId = Id<struct BufferTag>;
using RegionId = Id<struct RegionTag>;
using SpaceId = Id<struct SpaceTag>;
using EventId = Id<struct EventTag>;
using FamilyId = Id<struct FamilyTag>;
using LaneId = Id<struct LaneTag>;
using EntryId = Id<struct EntryTag>;

}  // namespace sluice
