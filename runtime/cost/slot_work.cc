#include "runtime/cost/slot_work.h"

#include <algorithm>

#include "runtime/program/space_table.h"
#include "runtime/routing/rows.h"

namespace sluice {

SlotWork slotWork(const RoutingTables& tables, SpaceKind space, int64_t index, int32_t slotSize) {
  const RowRange range = findRows(tables, space, index, slotSize);
  const double rows = range.rows;
  if (isRemote(space)) return {rows, 1};
  if (findInfo(space).dense) return {rows, double(liveSlots(tables, space))};
  if (findInfo(space).sums) return {rows, 1};
  const double slots = tables.expertSlots[static_cast<size_t>(range.expert)];
  if (space != SpaceKind::kGroups) return {rows, slots};
  return {rows, std::max(1.0, slots / tables.groups[static_cast<size_t>(index)].slots)};
}

}  // namespace sluice
