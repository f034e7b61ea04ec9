// The same program with its buffers in other places: side by side in fewer, wider regions, or each in its own
// region. The results of a program, and the order of its tasks, do not depend on it.
#pragma once

#include "runtime/program/program.h"

namespace sluice {

// Joins the saved regions of one extent, and the others, the last one first; regions of scalars, which have
// no gaps, stay the same. A program that passed verify() still passes it.
TaskProgram packRegions(TaskProgram program);

// No two buffers share memory.
TaskProgram spreadRegions(TaskProgram program);

}  // namespace sluice
