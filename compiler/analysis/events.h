// The events of a program, and what is known to be done once they have come (coverage).
#pragma once

#include <vector>

#include "compiler/analysis/finding.h"
#include "runtime/program/coverage.h"
#include "runtime/program/program.h"

namespace sluice {

// insert-events: derives the event arrays of a program, and what each family waits for and signals, from the
// operands of its families alone.
//
// `program` has spaces, buffers, entries and families, cut into tiles, and no events; in each entry a family
// comes after those whose buffers it reads. Errors, with the place of the family: a read before its write,
// two writers of a buffer in an entry, remote rows that no family reads, more than kMaxLinks events to wait
// for or to signal, spaces that no event can join; a program that already has events.
Expected<TaskProgram> insertEvents(TaskProgram program);

// Coverage: which families are known to be done, and how far, when a task of another family starts; by
// consumer, by producer. Uses the algebra of runtime/program/coverage.h, which the verifier uses to prove the
// finished program. Families of an entry are listed producers first (see insertEvents).
using CoverageTable = std::vector<std::vector<Scope>>;
CoverageTable computeCoverage(const TaskProgram& program);

// Returns the row of one more consumer, in space `consumer`, that waits for `waits`, given the rows of the
// families before it.
std::vector<Scope> computeCoverageRow(const TaskProgram& program, const CoverageTable& table,
                                      SpaceKind consumer, const std::vector<EventId>& waits);

}  // namespace sluice
