// A run whose ranks are processes, and this one of them.
#pragma once

#include "runtime/comm/transport.h"
#include "tools/cli/run_job.h"

namespace sluice::tools {

// Loads this rank's inputs, runs, and writes its outputs if all ranks can write theirs; rank 0 prints the
// report of all. Collective, also where this rank has no job: then all ranks learn why. The result is the
// exit status; kExitFailure where another rank is the one to say what failed.
Expected<int> runProcess(const Expected<Job>& job, double timeoutSeconds, Transport& transport);

}  // namespace sluice::tools
