// Runs a command for its output, with a limit on its time.
//
// Free function; called while the process has one thread. However this process ends, the command ends with
// it.
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

}  // namespace sluice::tools
