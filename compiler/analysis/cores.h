// Which cores run what, where matrix and vector cores are apart. Free functions on plain values.
#pragma once

#include <cstdint>

#include "runtime/program/program.h"

namespace sluice {

// Neighbouring cores of one kind.
struct CoreRange {
  int32_t first = 0;
  int32_t count = 1;
  friend bool operator==(const CoreRange&, const CoreRange&) = default;
};

// The cores of its kind that share the tasks of the family: all of them; but where `communication` vector
// cores do nothing but send and return rows, these are for such families and the others for all else.
CoreRange coresFor(const TaskProgram& program, const Family& family, int32_t communication);

}  // namespace sluice
