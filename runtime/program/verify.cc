#include "runtime/program/verify.h"

#include <algorithm>
#include <utility>

#include "runtime/program/codec.h"
#include "runtime/program/op_table.h"
#include "runtime/program/verify_internal.h"

namespace sluice {

using namespace verify_parts;

namespace {

// Which tasks of other families are done when a task starts, for every routing.
//
//   1. a family covers the producers of an event that it waits for, at the scope of the event's space: the
//      threshold counts all of them (checkEvents)
//   2. families are taken in order; each also covers the families that its producers cover, if their
//      tasks are sure to exist: an expert may have no rows, a rank may receive none or have no tokens
//
// coverage.h has the rules, which the planner uses, too.
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

}  // namespace

Expected<VerifiedProgram> verify(TaskProgram program) {
  // first, since the others quote them
  if (Status status = checkNames(program); !status) return status.error();
  for (Family& family : program.families) trimOperands(family);
  for (const auto check :
       {checkLimits, checkSpaces, checkBuffers, checkEntries, checkFamilies, checkPartners, checkLanes})
    if (Status status = check(program); !status) return status.error();

  const std::vector<EventUse> uses = collectEventUses(program);
  if (Status status = checkEvents(program, uses); !status) return status.error();

  auto order = orderFamilies(program, uses);
  if (!order) return order.error();
  if (Status status = checkLaneOrder(program, *order); !status) return status.error();

  const Coverage coverage = computeCoverage(program, uses, *order);
  if (Status status = checkAccesses(program, coverage); !status) return status.error();
  if (Status status = checkSharing(program, coverage); !status) return status.error();

  VerifiedProgram verified;
  verified.fingerprint_ = readChecksum(encode(program));
  verified.order_ = std::move(*order);
  verified.program_ = std::make_shared<const TaskProgram>(std::move(program));
  return verified;
}

}  // namespace sluice
