// The ranks of a run, together: threads of this process, or this process as one of them.
//
// Free functions. All outputs of a run appear, or none; rank 0 prints the report of all.
#pragma once

#include "runtime/comm/transport.h"
#include "tools/cli/run_job.h"

namespace sluice::tools {

// Loads this rank's inputs, runs, and writes its outputs if all ranks can write theirs. Collective, even if
// this rank has no job: then all ranks get the reason. Returns the exit status; kExitFailure if another rank
// prints the error.
Expected<int> runAsRank(const Expected<Job>& job, double timeoutSeconds, Transport& transport);

// Runs all ranks as threads of this process. Error: the error of the rank that failed first.
Expected<int> runThreads(const Job& job);

}  // namespace sluice::tools
