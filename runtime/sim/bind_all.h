// The tables that bind makes before a step, at all ranks at once: what a meeting would exchange is in one
// process.
//
// Value types and free functions of values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/exec/plan.h"
#include "runtime/routing/routing.h"

namespace sluice {

// What one rank binds for an entry that routes. The memory must outlive the call of bindAll().
struct RankRouting {
  int64_t tokens = 0;
  std::span<const int32_t> expertIds;  // [T,K]; empty if the entry has none
  std::span<const int32_t> placement;  // [experts]; empty if the entry has none
  // `expertIds` are the places of a recorded run (TracedRouting), which any entry has; `placement` is empty.
  bool arePlaces = false;
};

// By rank.
using AllTables = std::vector<RoutingTables>;

// The tables of the steps that use one routing.
class BoundRouting {
 public:
  // Returns the tables of `entry`, which uses the routing. There is one per rank.
  const AllTables& of(const Plan& plan, EntryId entry) const { return tables_[plan.at(entry).tables.value]; }

 private:
  friend Expected<BoundRouting> bindAll(const Plan&, EntryId, std::span<const RankRouting>);
  std::vector<AllTables> tables_;  // by entry; empty where another one has them
};

// Routes at `entry`, which must route, and makes the tables of all entries that use its routing. Errors,
// which begin with the rank: numbers of tokens or ids that the program does not allow, ids out of range or
// repeated, ranks that must have the same tokens or places and have not, more pairs than rows can be
// numbered.
Expected<BoundRouting> bindAll(const Plan& plan, EntryId entry, std::span<const RankRouting> ranks);

}  // namespace sluice
