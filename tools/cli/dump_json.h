// A program as JSON, for scripts. References are indices into the arrays; -1 is none. Free function.
#pragma once

#include <string>

#include "runtime/program/program.h"
#include "runtime/program/text.h"

namespace sluice::tools {

// Prints any value, even a program that verify() would refuse. Keys are in the order of program.h.
std::string printJson(const TaskProgram& program, const TextSelection& selection);

}  // namespace sluice::tools
