// The same program in fewer, wider regions: what lay in regions of its own lies side by side in the strides
// of one. What a program computes, and when, does not depend on it.
#pragma once

#include "runtime/program/program.h"

namespace sluice {

// Joins the regions of one extent that are saved, and those that are not, the last one first; regions of
// scalars, which have no gaps, stay as they are. What passed verify() passes it still.
TaskProgram packRegions(TaskProgram program);

}  // namespace sluice
