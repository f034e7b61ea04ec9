// The device on which a program is simulated: the rates of a target, and the workers of a rank.
//
// Value type and a free function.
#pragma once

#include <string>

#include "compiler/target/target.h"
#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice::tools {

struct SimDevice {
  std::string name;  // of the target
  Rates rates;
  int workers = 1;  // per rank
};

// `workers`: as the user asks; 0: a worker per core of the program or, if cores are unified and the target
// has fewer, per core of the target. Errors: a target that does not exist or has no rates; a program whose
// kinds of cores are not the target's, or that has more separate cores than the target; more workers than the
// program has cores (found, expected).
Expected<SimDevice> makeSimDevice(const TaskProgram& program, const std::string& target, int workers);

}  // namespace sluice::tools
