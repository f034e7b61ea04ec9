#include "runtime/program/coverage.h"

#include <algorithm>

#include "runtime/program/space_table.h"

namespace sluice {

std::string_view scopeText(Scope scope) {
  switch (scope) {
    case Scope::kNone:
      return "nothing";
    case Scope::kSlot:
      return "its slot";
    case Scope::kGroup:
      return "its group of slots";
    case Scope::kExpert:
      return "its expert";
    case Scope::kAll:
      return "all slots";
  }
  return "?";
}

Scope scopeOf(EventSpace space) {
  switch (space) {
    case EventSpace::kRows:
    case EventSpace::kTokens:
      return Scope::kSlot;
    case EventSpace::kGroups:
      return Scope::kGroup;
    case EventSpace::kExperts:
      return Scope::kExpert;
    case EventSpace::kOne:
      return Scope::kAll;
  }
  return Scope::kNone;
}

Scope compose(SpaceKind c, SpaceKind q, SpaceKind p, Scope near, Scope far, bool everywhere) {
  if (far == Scope::kNone || isRemote(q)) return Scope::kNone;
  if (near == Scope::kSlot) return far;  // c's slot is live, so q has tasks in it
  const Scope joined = std::max(near, far);
  // c's group is live and so are all of its slots: q has tasks in each
  if (near == Scope::kGroup) return joined;
  if (q == SpaceKind::kOnce) return joined;  // it always has tasks
  // these have, if the rank owns an expert; where it owns none, c must have none either, or p
  if (q == SpaceKind::kExperts) {
    const bool consumes = c == SpaceKind::kReturns || (c != SpaceKind::kSends && infoOf(c).needsExpert);
    return everywhere || consumes || infoOf(p).needsExpert ? joined : Scope::kNone;
  }
  if (q == SpaceKind::kTokens) {
    // c waits for all slots of tokens. A rank without tokens has none: no task of q. Then c must have none
    // either, or p none that writes here: nothing is returned to such a rank, but rows are sent to it.
    const bool consumes = c == SpaceKind::kTokens || c == SpaceKind::kSends;
    const bool produces = p == SpaceKind::kTokens || p == SpaceKind::kReturns;
    return consumes || produces ? joined : Scope::kNone;
  }
  // What is left: q is in space rows or groups and c waits for all slots of an expert. If c has rows itself
  // there are some; else an expert without rows has no task of q, and none of p only where p too exists for
  // rows only.
  if (c == SpaceKind::kRows || c == SpaceKind::kReturns || c == SpaceKind::kGroups) return joined;
  const bool onlyWithRows = p == SpaceKind::kRows || p == SpaceKind::kSends || p == SpaceKind::kGroups;
  return onlyWithRows ? near : Scope::kNone;
}

Scope scopeToRead(SpaceKind reader, Extent extent) {
  switch (extent) {
    case Extent::kRows:
      if (reader == SpaceKind::kGroups) return Scope::kGroup;
      return reader == SpaceKind::kExperts ? Scope::kExpert : Scope::kSlot;
    case Extent::kTokens:
      return reader == SpaceKind::kTokens ? Scope::kSlot : Scope::kAll;
    case Extent::kFixed:  // weights, by expert for rows
    case Extent::kExperts:
      return reader == SpaceKind::kRows || reader == SpaceKind::kGroups ? Scope::kExpert : Scope::kAll;
    case Extent::kPairs:
      return Scope::kAll;
  }
  return Scope::kAll;
}

// What has rows of the writer's slot or group, or tokens of its slot; elements of different buffers of
// another extent do not lie alike.
Scope scopeToReuse(SpaceKind writer, SpaceKind user, Extent extent) {
  if (extent == Extent::kRows) {
    if (user == SpaceKind::kExperts) return Scope::kExpert;
    return writer == SpaceKind::kGroups ? Scope::kGroup : Scope::kSlot;
  }
  return extent == Extent::kTokens && user == SpaceKind::kTokens ? Scope::kSlot : Scope::kAll;
}

}  // namespace sluice
