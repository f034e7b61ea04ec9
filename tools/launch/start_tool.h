// Replaces this process by another tool of Sluice.
//
// Free functions; called while the process has one thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/expected.h"

namespace sluice::tools {

// The path of the program that this process runs; empty if the system does not report it.
std::string ownPath();

// The command line of this process, argv[0] first.
Expected<std::vector<std::string>> ownCommandLine();

// Replaces this process by `tool`, found next to its program or on the PATH; arguments[0] is replaced.
// Returns only if that fails, with the error.
Error startTool(const std::string& tool, std::vector<std::string> arguments);

}  // namespace sluice::tools
