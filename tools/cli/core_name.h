// Names of cores on the command line: "3", or a kind and a number, "cube3". Free functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"

namespace sluice::tools {

// The number of the core. Errors: not a core of the program, or one of a kind that no lane runs on.
Expected<int32_t> findCore(const TaskProgram& program, std::string_view name);

}  // namespace sluice::tools
