// Starts the ranks of a job as processes of this machine and waits until all have ended.
//
// Free functions; called while the process has one thread. However this process ends, its ranks end with it.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/expected.h"

namespace sluice::tools {

struct Launch {
  std::string program;                 // its path
  std::vector<std::string> arguments;  // argv[0] first
  int ranks = 1;
  double graceSeconds = 3;  // when a rank has failed, time for the others to report and end by themselves
  // How long all running ranks may be stopped (SIGSTOP, Ctrl-Z), when none of them can report the others.
  double stoppedSeconds = 30;
};

// Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and SLUICE_JOB, a name that no other job has.
// It has no input, writes to this process's standard output, and its standard error is shown with its rank.
// Returns the exit status: 0 if all ranks succeeded; the status of the first rank that failed, if it printed
// an error; 128 plus the signal if a signal asked this process to end. Errors: a rank was killed or failed
// without an error; all ranks are stopped; processes cannot be started. The message names the ranks. No rank
// is left running in any case. Time during which this process itself is stopped does not count.
Expected<int> launchRanks(const Launch& launch);

}  // namespace sluice::tools
