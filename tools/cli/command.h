// The subcommands of `sluice`, one file each. Each adds itself to the application; main() runs the one that
// was asked for.
//
// An action returns the exit status, or an error, which main() prints as the one line `sluice: error: ...`
// with exit status 1. What the command line alone shows to be wrong is a usage error: exit status 2.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

#include "runtime/base/expected.h"

namespace sluice::tools {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

struct Command {
  CLI::App* app = nullptr;  // owned by its parent
  std::function<Expected<int>()> action;
};

Command addRun(CLI::App& parent);
Command addDump(CLI::App& parent);
Command addAs(CLI::App& parent);
Command addVerify(CLI::App& parent);
Command addDiff(CLI::App& parent);
Command addMakeInputs(CLI::App& parent);
Command addCheck(CLI::App& parent);
Command addCalibrate(CLI::App& parent);
Command addBench(CLI::App& parent);

}  // namespace sluice::tools
