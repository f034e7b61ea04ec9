// Rows that one rank reads where they are, instead of copying them between tokens and rows.
#pragma once

#include "runtime/program/program.h"

namespace sluice {

// Changes a program of one rank, before events, so that sums of a combine read the rows that they add and
// nothing returns; products gather their rows from tokens where all that reads a dispatch's rows can
// (isGathered()). Tokens that a later entry reads are kept as tokens, T instead of R times a row, unless it
// is given them. What a dispatch does besides, it still does; and rows are copied where otherwise a task
// would wait for more events than it can. Results keep their bits. Programs of several ranks are returned as
// they are.
TaskProgram readInPlace(TaskProgram program);

// Whether the entries that route gather all their rows.
bool readsInPlace(const TaskProgram& program);

}  // namespace sluice
