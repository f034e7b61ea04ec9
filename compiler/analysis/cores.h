// Which cores run what. Free functions on plain values.
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

// The cores that send and return rows.
struct CommunicationCores {
  int32_t reserved = 0;  // vector cores that do nothing else; 0: none
  int32_t sends = 0;     // the most cores that share sends; 0: all that may communicate
  int32_t returns = 0;   // likewise returns
  friend bool operator==(const CommunicationCores&, const CommunicationCores&) = default;
};

// The cores that share the tasks of the family: all cores of its kind. But if vector cores are reserved for
// communication, families that send or return rows get these and the others get the rest; and sends and
// returns get the first of their cores only if fewer are allowed.
CoreRange coresFor(const TaskProgram& program, const Family& family, const CommunicationCores& communication);

}  // namespace sluice
