// The main function of sluice and sluice-bench. Called once, while the process has one thread.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "runtime/base/expected.h"

namespace sluice::tools {

// Declares the options, parses the command line and runs the action that `declare` returned. Prints an error
// as one line, `sluice: error: ...`. Returns the exit status: the action's, 1 after its error, 2 after a
// wrong command line, which callbacks of the application may refuse by a CLI::ValidationError.
int runMain(const char* description, const char* name, int argc, char** argv,
            const std::function<std::function<Expected<int>()>(CLI::App&)>& declare);

}  // namespace sluice::tools
