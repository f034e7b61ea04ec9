// Coverage: which families are known to be done when a task of another one starts, and how far.
//
// C covers P at a scope if, when a task of C starts, all tasks of P at that scope are done. Directly by an
// event of P that C waits for; transitively with the wider of the two scopes, as far as the tasks between
// are sure to exist: an expert may have no rows, a rank none, or no tokens. A remote event says what other
// ranks' tasks have written here, and nothing of what those tasks waited for there: it ends a chain. The
// rules are those of runtime/program/verify_cover.cc, which proves the finished program.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/analysis/draft.h"

namespace sluice {

enum class Scope : uint8_t {
  kNone = 0,
  kSlot = 1,    // those of the same slot
  kGroup = 2,   // those of all slots of the group
  kExpert = 3,  // those of all slots of the expert
  kAll = 4,     // every one that writes at this rank
};

// The scope at which a wait for an event of this space covers its producers.
Scope scopeOf(EventSpace space);

// By consumer, by producer. Families of an entry are listed producers first (see planEvents).
using CoverageTable = std::vector<std::vector<Scope>>;
CoverageTable computeCoverage(const Draft& draft);

// The row of one more consumer, of space `consumer`, that waits for `waits`, given the rows of the families
// before it.
std::vector<Scope> coverageOf(const Draft& draft, const CoverageTable& table, SpaceKind consumer,
                              const std::vector<EventId>& waits);

}  // namespace sluice
