// Starts the ranks of a job as processes of this machine and waits for their common end.
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
  double graceSeconds = 3;  // for the others to report and end by themselves when a rank has failed
  // How long all ranks that have not ended may be stopped (SIGSTOP, Ctrl-Z), so that none reports the others.
  double stoppedSeconds = 30;
};

// Each rank has RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and, of a name that no other job has,
// SLUICE_JOB; it reads nothing, writes to this process's standard output, and its standard error is shown
// with its rank. The result is the exit status: 0 where all ranks succeeded, that of the first rank that
// failed and said why, 128 and the signal where this process was told to end. Errors: a rank that was killed
// or failed without a word, by name; ranks that are all stopped, by name; processes that cannot be started.
// No rank is left in any case. Time in which this process itself is stopped does not count.
Expected<int> launchRanks(const Launch& launch);

}  // namespace sluice::tools
