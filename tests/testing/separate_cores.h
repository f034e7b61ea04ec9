// The program with separate matrix and vector cores: it computes the same.
#pragma once

#include "runtime/program/program.h"

namespace sluice {

// Products go to `cube` cores, everything else to `vector` cores. If `communication` > 0, the first
// `communication` of these only send and return rows; otherwise all vector cores run all vector families.
// Each lane is dealt again in order of slots and tiles, so every lane of the program must have one family,
// and none may be fused.
TaskProgram separateCores(TaskProgram program, int cube, int vector, int communication = 0);

}  // namespace sluice
