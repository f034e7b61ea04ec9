// Coverage: which tasks of other families are done when a task starts, for every routing.
//
//   1. a family covers the producers of an event that it waits for, at the scope of the event's space: the
//      threshold counts all of them (checkEvents)
//   2. families are taken in order; each also covers the families that its producers cover, if their
//      tasks are sure to exist: an expert may have no rows, a rank may receive none or have no tokens
//
// coverage.h has the rules, which the planner uses, too.
#include <algorithm>

#include "runtime/program/verify_internal.h"

namespace sluice::verify_parts {
Coverage computeCoverage(const TaskProgram& program, const std::vector<EventUse>& uses,
                         const std::vector<FamilyOrder>& order) {
  const auto count = static_cast<uint32_t>(program.families.size());
  std::vector<FamilyId> sorted(count);
  for (uint32_t i = 0; i < count; ++i) sorted[i] = FamilyId{i};
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](FamilyId a, FamilyId b) { return order[a.value] < order[b.value]; });

  const bool everywhere = program.deal().fewest() > 0;
  Coverage coverage(count);
  for (FamilyId c : sorted) {
    for (EventId id : program.at(c).waits) {
      const Scope direct = findScope(program.at(id).space);
      for (FamilyId q : uses[id.value].producers) {
        coverage.raise(c, q, direct);
        for (FamilyId p : sorted)
          coverage.raise(c, p,
                         compose(spaceKindIn(program, c), spaceKindIn(program, q), spaceKindIn(program, p),
                                 direct, coverage.covers(q, p), everywhere));
      }
    }
  }
  return coverage;
}

}  // namespace sluice::verify_parts
