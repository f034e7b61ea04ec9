// Coverage: which tasks of other families are done when a task starts, for every routing.
//
//   1. a family covers the producers of an event it waits for, at the scope of the event's space: the
//      threshold counts all of them (checkEvents)
//   2. families are taken in order; each covers what those covered that it covers directly, as far as
//      their tasks are sure to exist: an expert may have no rows, a rank may receive none or have no tokens
//
// A remote producer ran at another rank and covered tasks there: nothing follows for this one.
#include <algorithm>

#include "runtime/program/verify_internal.h"

namespace sluice::verify_parts {
namespace {

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

// Whether a rank that owns no expert has no task of this space, or (sends) none that writes at it.
bool needsExpert(SpaceKind kind) {
  return kind != SpaceKind::kTokens && kind != SpaceKind::kOnce && kind != SpaceKind::kReturns;
}

// c covers q directly at `near`, q covers p at `far`: the scope at which c covers p. `everywhere`: every rank
// owns an expert.
Scope compose(SpaceKind c, SpaceKind q, SpaceKind p, Scope near, Scope far, bool everywhere) {
  if (far == Scope::kNone || writesRemotely(q)) return Scope::kNone;
  if (near == Scope::kSlot) return far;  // c's slot is live, so q has tasks in it
  const Scope joined = std::max(near, far);
  // c's group is live and so are all of its slots: q has tasks in each
  if (near == Scope::kGroup) return joined;
  if (q == SpaceKind::kOnce) return joined;  // it always has tasks
  // these have, if the rank owns an expert; where it owns none, c must have none either, or p
  if (q == SpaceKind::kExperts) {
    const bool consumes = c == SpaceKind::kReturns || (c != SpaceKind::kSends && needsExpert(c));
    return everywhere || consumes || needsExpert(p) ? joined : Scope::kNone;
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

}  // namespace

Coverage computeCoverage(const TaskProgram& program, const std::vector<FamilyTable>& tables,
                         const std::vector<EventUse>& uses, const std::vector<FamilyOrder>& order) {
  const auto count = static_cast<uint32_t>(tables.size());
  std::vector<FamilyId> sorted(count);
  for (uint32_t i = 0; i < count; ++i) sorted[i] = FamilyId{i};
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](FamilyId a, FamilyId b) { return order[a.value] < order[b.value]; });

  const bool everywhere = program.deal().fewest() > 0;
  Coverage coverage(count);
  for (FamilyId c : sorted) {
    for (EventId id : tables[c.value].waits) {
      if (!id) continue;
      const Scope near = scopeOf(program.at(id).space);
      for (FamilyId q : uses[id.value].producers) {
        coverage.raise(c, q, near);
        for (FamilyId p : sorted)
          coverage.raise(c, p,
                         compose(kindOf(program, c), kindOf(program, q), kindOf(program, p), near,
                                 coverage.covers(q, p), everywhere));
      }
    }
  }
  return coverage;
}

}  // namespace sluice::verify_parts
