// insert-events: derives the event arrays of a program, and what each family waits for and signals, from the
// operands of its families alone.
#pragma once

#include "compiler/analysis/finding.h"

namespace sluice {

// `program` has spaces, buffers, entries and families, cut into tiles, and no events; in each entry a family
// comes after those whose buffers it reads. Errors, with the place of the family: a read before its write,
// two writers of a buffer in an entry, remote rows that no family reads, more than kMaxLinks events to wait
// for or to signal, spaces that no event can join; a program that already has events.
Expected<TaskProgram> insertEvents(TaskProgram program);

}  // namespace sluice
