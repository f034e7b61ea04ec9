#include "compiler/analysis/coverage.h"

#include <algorithm>

namespace sluice {
namespace {

bool signals(const Family& family, EventId event) {
  return std::find(family.signals.begin(), family.signals.end(), event) != family.signals.end();
}

SpaceKind spaceOf(const TaskProgram& program, size_t family) {
  return program.at(program.families[family].space).kind;
}

}  // namespace

std::vector<Scope> coverageOf(const TaskProgram& program, const CoverageTable& table, SpaceKind consumer,
                              const std::vector<EventId>& waits) {
  std::vector<Scope> row(program.families.size(), Scope::kNone);
  const bool everywhere = program.deal().fewest() > 0;
  for (EventId wait : waits) {
    const EventArray& event = program.at(wait);
    const Scope scope = scopeOf(event.space);
    for (size_t p = 0; p < program.families.size(); ++p) {
      if (!signals(program.families[p], wait)) continue;
      row[p] = std::max(row[p], scope);
      if (p >= table.size()) continue;
      for (size_t far = 0; far < p; ++far)
        row[far] = std::max(row[far], compose(consumer, spaceOf(program, p), spaceOf(program, far), scope,
                                              table[p][far], everywhere));
    }
  }
  return row;
}

CoverageTable computeCoverage(const TaskProgram& program) {
  CoverageTable table;
  for (size_t f = 0; f < program.families.size(); ++f)
    table.push_back(coverageOf(program, table, spaceOf(program, f), program.families[f].waits));
  return table;
}

}  // namespace sluice
