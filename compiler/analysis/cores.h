// Which cores run what, on targets with separate matrix and vector cores. Free functions on plain values.
#pragma once

#include <cstdint>

#include "runtime/program/program.h"

namespace sluice {

// A range of neighbouring cores of one kind.
struct CoreRange {
  int32_t first = 0;
  int32_t count = 1;
  friend bool operator==(const CoreRange&, const CoreRange&) = default;
};

// The cores that share the tasks of the family: all cores of its kind. But if `communication` vector cores
// are reserved for sending and returning rows, families that do so get these cores and the others get the
// rest.
CoreRange coresFor(const TaskProgram& program, const Family& family, int32_t communication);

}  // namespace sluice
