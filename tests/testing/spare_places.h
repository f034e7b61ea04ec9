// Programs whose experts have several places, from programs in which each has one.
#pragma once

#include "runtime/program/program.h"

namespace sluice {

// Makes `spare` of a program's experts spare places: entries that route get the input `placement`. Needs
// spare < experts, and top_k at most the rest.
TaskProgram spareExperts(TaskProgram program, int32_t spare);

}  // namespace sluice
