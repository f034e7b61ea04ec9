// Runs a command for its output, with a limit on its time, or replaces this process by another tool of
// Sluice.
//
// Free functions; called while the process has one thread. However this process ends, a command that it runs
// ends with it.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/expected.h"

namespace sluice::tools {

struct CommandResult {
  int status = 0;  // exit status; 128 plus the signal that ended it
  bool timedOut = false;
  std::string output;  // of both streams, at most 64 KiB

  bool succeeded() const { return status == 0 && !timedOut; }
  // Its first or last line that is not empty.
  std::string firstLine() const;
  std::string lastLine() const;
};

// `arguments`: the program, found on the PATH if it has no slash, and what it gets; `folder`: where it runs.
// A program that does not exist has status 127. Error: no process can be started.
Expected<CommandResult> runCommand(const std::vector<std::string>& arguments, double seconds,
                                   const std::string& folder = ".");

// The path of the program that this process runs; empty if the system does not report it.
std::string ownPath();

// The command line of this process, argv[0] first.
Expected<std::vector<std::string>> ownCommandLine();

// Replaces this process by `tool`, found next to its program or on the PATH; arguments[0] is replaced.
// Returns only if that fails, with the error.
Error startTool(const std::string& tool, std::vector<std::string> arguments);

}  // namespace sluice::tools
