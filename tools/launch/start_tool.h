// Starts another tool of Sluice in the place of this process.
//
// Free functions; called while the process has one thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/expected.h"

namespace sluice::tools {

// The program that this process runs; empty where the system does not say.
std::string ownPath();

// Its command line, argv[0] first.
Expected<std::vector<std::string>> ownCommandLine();

// Replaces this process by `tool`, found beside its program or on the PATH. Returns only where there is none
// that can be started, which is the error. arguments[0] is replaced.
Error startTool(const std::string& tool, std::vector<std::string> arguments);

}  // namespace sluice::tools
