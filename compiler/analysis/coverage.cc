#include "compiler/analysis/coverage.h"

#include <algorithm>

namespace sluice {
namespace {

bool signals(const Sync& sync, EventId event) {
  return std::find(sync.signals.begin(), sync.signals.end(), event) != sync.signals.end();
}

SpaceKind spaceOf(const Draft& draft, size_t family) {
  return draft.program.at(draft.program.families[family].space).kind;
}

// Whether a rank without experts has no task of the space, or (sends) none that writes at it.
bool needsExperts(SpaceKind kind) {
  return kind != SpaceKind::kTokens && kind != SpaceKind::kOnce && kind != SpaceKind::kReturns;
}

// `q` lies between `c`, which covers it at `near`, and `p`, which it covers at `far`: how far c covers p.
// `everywhere`: every rank owns experts.
Scope compose(SpaceKind c, SpaceKind q, SpaceKind p, Scope near, Scope far, bool everywhere) {
  if (far == Scope::kNone) return Scope::kNone;
  if (near == Scope::kSlot) return far;  // c's slot is live, so q has tasks in it
  const Scope wider = std::max(near, far);
  if (near == Scope::kGroup) return wider;  // c's group is live, and so is each slot of it
  const auto isOne = [](SpaceKind s, SpaceKind a, SpaceKind b) { return s == a || s == b; };
  if (q == SpaceKind::kOnce) return wider;  // it always has tasks
  if (q == SpaceKind::kExperts) {
    // a rank without experts has no task of q; then it must have none of c, or none of p that writes here
    const bool hasNoneOfC = c == SpaceKind::kReturns || (c != SpaceKind::kSends && needsExperts(c));
    return everywhere || hasNoneOfC || needsExperts(p) ? wider : Scope::kNone;
  }
  if (q == SpaceKind::kTokens) {
    // a rank without tokens has no task of q; then it must have none of c, or none of p that writes here
    const bool goTogether =
        isOne(c, SpaceKind::kTokens, SpaceKind::kSends) || isOne(p, SpaceKind::kTokens, SpaceKind::kReturns);
    return goTogether ? wider : Scope::kNone;
  }
  // q is in rows or groups and c waits for an expert, which has rows if c does
  if (c == SpaceKind::kGroups || isOne(c, SpaceKind::kRows, SpaceKind::kReturns)) return wider;
  return p == SpaceKind::kGroups || isOne(p, SpaceKind::kRows, SpaceKind::kSends) ? near : Scope::kNone;
}

}  // namespace

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

std::vector<Scope> coverageOf(const Draft& draft, const CoverageTable& table, SpaceKind consumer,
                              const std::vector<EventId>& waits) {
  std::vector<Scope> row(draft.sync.size(), Scope::kNone);
  const bool everywhere = draft.program.deal().fewest() > 0;
  for (EventId wait : waits) {
    const EventArray& event = draft.program.at(wait);
    const Scope scope = scopeOf(event.space);
    for (size_t p = 0; p < draft.sync.size(); ++p) {
      if (!signals(draft.sync[p], wait)) continue;
      row[p] = std::max(row[p], scope);
      if (event.remote || p >= table.size()) continue;
      for (size_t far = 0; far < p; ++far)
        row[far] = std::max(row[far], compose(consumer, spaceOf(draft, p), spaceOf(draft, far), scope,
                                              table[p][far], everywhere));
    }
  }
  return row;
}

CoverageTable computeCoverage(const Draft& draft) {
  CoverageTable table;
  for (size_t f = 0; f < draft.sync.size(); ++f)
    table.push_back(coverageOf(draft, table, spaceOf(draft, f), draft.sync[f].waits));
  return table;
}

}  // namespace sluice
