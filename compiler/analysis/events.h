// Event insertion: the event arrays of a program, and what each family waits for and signals, from its
// families' operands alone.
#pragma once

#include "compiler/analysis/coverage.h"
#include "compiler/analysis/finding.h"

namespace sluice {

// The program with its events, and the waits and signals of its families. `program` has spaces, buffers,
// entries and families; in each entry a family stands after those whose buffers it reads. Finds: a read
// before its write, two writers of a buffer in an entry, remote rows that nobody reads, more than two events
// to wait for or to signal, spaces no event can join.
Analyzed<TaskProgram> planEvents(TaskProgram program);

}  // namespace sluice
