// The program with its matrix and vector cores apart: what it computes is the same.
#pragma once

#include "runtime/program/program.h"

namespace sluice {

// Products go to `cube` cores, all else to `vector` ones, of which the first `communication` run what sends
// and returns rows and nothing else; none: all vector cores run all of it. Each lane is dealt again, in order
// of slots and tiles, so that every lane of the program must be of one family, and none of them fused.
TaskProgram separateCores(TaskProgram program, int cube, int vector, int communication = 0);

}  // namespace sluice
