#include "compiler/analysis/coverage.h"

#include <algorithm>

namespace sluice {
namespace {

bool signals(const Sync& sync, EventId event) {
  return std::find(sync.signals.begin(), sync.signals.end(), event) != sync.signals.end();
}

}  // namespace

Scope scopeOf(EventSpace space) {
  switch (space) {
    case EventSpace::kRows:
    case EventSpace::kTokens:
      return Scope::kSlot;
    case EventSpace::kExperts:
      return Scope::kExpert;
    case EventSpace::kOne:
      return Scope::kAll;
  }
  return Scope::kNone;
}

std::vector<Scope> coverageOf(const Draft& draft, const CoverageTable& table,
                              const std::vector<EventId>& waits) {
  std::vector<Scope> row(draft.sync.size(), Scope::kNone);
  for (EventId wait : waits) {
    const EventArray& event = draft.program.at(wait);
    const Scope scope = scopeOf(event.space);
    for (size_t p = 0; p < draft.sync.size(); ++p) {
      if (!signals(draft.sync[p], wait)) continue;
      row[p] = std::max(row[p], scope);
      if (event.remote || p >= table.size()) continue;
      for (size_t q = 0; q < p; ++q)
        if (table[p][q] != Scope::kNone) row[q] = std::max({row[q], scope, table[p][q]});
    }
  }
  return row;
}

CoverageTable computeCoverage(const Draft& draft) {
  CoverageTable table;
  for (const Sync& sync : draft.sync) table.push_back(coverageOf(draft, table, sync.waits));
  return table;
}

}  // namespace sluice
