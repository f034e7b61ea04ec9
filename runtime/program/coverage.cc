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

Scope findScope(EventSpace space) {
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

Scope compose(SpaceKind c, SpaceKind q, SpaceKind p, Scope direct, Scope beyond, bool everywhere) {
  if (beyond == Scope::kNone || isRemote(q)) return Scope::kNone;
  if (direct == Scope::kSlot) return beyond;  // c's slot is live, so q has tasks in it
  const Scope joined = std::max(direct, beyond);
  // c's group is live and so are all of its slots: q has tasks in each
  if (direct == Scope::kGroup) return joined;
  if (q == SpaceKind::kOnce) return joined;  // it always has tasks
  // q has tasks if the rank owns an expert; if it owns none, c or p must have no tasks either
  if (q == SpaceKind::kExperts) {
    const bool consumes = c == SpaceKind::kReturns || (c != SpaceKind::kSends && findInfo(c).needsExpert);
    return everywhere || consumes || findInfo(p).needsExpert ? joined : Scope::kNone;
  }
  if (q == SpaceKind::kTokens) {
    // c waits for all slots of tokens. A rank without tokens has none, so q has no tasks. Then c must have no
    // tasks either, or p none that write here: nothing is returned to such a rank, but rows are sent to it.
    const bool consumes = c == SpaceKind::kTokens || c == SpaceKind::kSends;
    const bool produces = p == SpaceKind::kTokens || p == SpaceKind::kReturns;
    return consumes || produces ? joined : Scope::kNone;
  }
  // The remaining case: q is in space rows or groups and c waits for all slots of an expert, or for all
  // slots. If c has rows itself, q has tasks, though not for every expert. Else the expert, or the rank, may
  // have no rows and q no tasks; p then has no tasks only if it, too, exists for rows only.
  const bool onlyWithRows = p == SpaceKind::kRows || p == SpaceKind::kSends || p == SpaceKind::kGroups;
  if (c == SpaceKind::kRows || c == SpaceKind::kReturns || c == SpaceKind::kGroups)
    return direct == Scope::kExpert || onlyWithRows || beyond == Scope::kAll ? joined : Scope::kNone;
  return onlyWithRows ? direct : Scope::kNone;
}

Scope scopeToRead(SpaceKind reader, Extent extent) {
  switch (extent) {
    case Extent::kRows:
      if (reader == SpaceKind::kGroups) return Scope::kGroup;
      if (reader == SpaceKind::kTokens) return Scope::kAll;  // the rows of a token are anywhere
      return reader == SpaceKind::kExperts ? Scope::kExpert : Scope::kSlot;
    case Extent::kTokens:
      return reader == SpaceKind::kTokens ? Scope::kSlot : Scope::kAll;
    case Extent::kFixed:  // weights, by expert for rows, and so are amaxes of factors in sums
    case Extent::kExperts:
      return reader == SpaceKind::kRows || reader == SpaceKind::kGroups || reader == SpaceKind::kExperts
                 ? Scope::kExpert
                 : Scope::kAll;
    case Extent::kPairs:
      return Scope::kAll;
  }
  return Scope::kAll;
}

// Rows and tokens are at the same place in all buffers of a region, so tasks of the writer's slot, group or
// expert are enough; elements of other extents are not.
Scope scopeToReuse(SpaceKind writer, SpaceKind user, Extent extent) {
  if (extent == Extent::kRows && user != SpaceKind::kTokens) {
    if (user == SpaceKind::kExperts || writer == SpaceKind::kExperts) return Scope::kExpert;
    return writer == SpaceKind::kGroups ? Scope::kGroup : Scope::kSlot;
  }
  return extent == Extent::kTokens && user == SpaceKind::kTokens ? Scope::kSlot : Scope::kAll;
}

}  // namespace sluice
