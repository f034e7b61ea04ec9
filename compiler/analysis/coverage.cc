#include "compiler/analysis/coverage.h"

#include <algorithm>

namespace sluice {
namespace {

bool signals(const Family& family, EventId event) {
  return std::find(family.signals.begin(), family.signals.end(), event) != family.signals.end();
}

}  // namespace

std::vector<Scope> computeCoverageRow(const TaskProgram& program, const CoverageTable& table,
                                      SpaceKind consumer, const std::vector<EventId>& waits) {
  const auto spaceKindAt = [&](size_t family) { return program.at(program.families[family].space).kind; };
  std::vector<Scope> row(program.families.size(), Scope::kNone);
  const bool everywhere = program.deal().fewest() > 0;
  for (EventId wait : waits) {
    const Scope scope = findScope(program.at(wait).space);
    for (size_t p = 0; p < row.size(); ++p) {
      if (!signals(program.families[p], wait)) continue;
      row[p] = std::max(row[p], scope);
      if (p >= table.size()) continue;
      for (size_t far = 0; far < p; ++far)
        row[far] = std::max(
            row[far], compose(consumer, spaceKindAt(p), spaceKindAt(far), scope, table[p][far], everywhere));
    }
  }
  return row;
}

CoverageTable computeCoverage(const TaskProgram& program) {
  CoverageTable table;
  for (const Family& family : program.families)
    table.push_back(computeCoverageRow(program, table, program.at(family.space).kind, family.waits));
  return table;
}

}  // namespace sluice
