// The same program with its buffers elsewhere: side by side in fewer, wider regions, or each in one of its
// own. What a program computes, and when, does not depend on it.
#pragma once

#include "runtime/program/program.h"

namespace sluice {

// Joins the regions of one extent that are saved, and those that are not, the last one first; regions of
// scalars, which have no gaps, stay as they are. What passed verify() passes it still.
TaskProgram packRegions(TaskProgram program);

// Buffers share no memory at all.
TaskProgram spreadRegions(TaskProgram program);

}  // namespace sluice
