// Coverage: which families are known to be done when a task of another one starts, and how far.
//
// By the algebra of runtime/program/coverage.h, which the verifier uses, too, to prove the finished program.
#pragma once

#include <vector>

#include "runtime/program/coverage.h"
#include "runtime/program/program.h"

namespace sluice {

// By consumer, by producer. Families of an entry are listed producers first (see insertEvents).
using CoverageTable = std::vector<std::vector<Scope>>;
CoverageTable computeCoverage(const TaskProgram& program);

// The row of one more consumer, of space `consumer`, that waits for `waits`, given the rows of the families
// before it.
std::vector<Scope> coverageOf(const TaskProgram& program, const CoverageTable& table, SpaceKind consumer,
                              const std::vector<EventId>& waits);

}  // namespace sluice
