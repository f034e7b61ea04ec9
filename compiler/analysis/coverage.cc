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

}  // namespace

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
      if (p >= table.size()) continue;
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
