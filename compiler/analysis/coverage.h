// Coverage: which families are known to be done, and how far, when a task of another family starts.
//
// Uses the algebra of runtime/program/coverage.h, which the verifier uses to prove the finished program.
#pragma once

#include <vector>

#include "runtime/program/coverage.h"
#include "runtime/program/program.h"

namespace sluice {

// By consumer, by producer. Families of an entry are listed producers first (see insertEvents).
using CoverageTable = std::vector<std::vector<Scope>>;
CoverageTable computeCoverage(const TaskProgram& program);

// Returns the row of one more consumer, in space `consumer`, that waits for `waits`, given the rows of the
// families before it.
std::vector<Scope> computeCoverageRow(const TaskProgram& program, const CoverageTable& table,
                                      SpaceKind consumer, const std::vector<EventId>& waits);

}  // namespace sluice
