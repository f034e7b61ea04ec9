// The texts that `sluice run` prints. Free functions on values; any thread.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/run_job.h"

namespace sluice::tools {

// Tables of all ranks. `areProcesses`: each rank is a process with memory of its own.
std::string reportRun(const Job& job, const std::vector<RankFigures>& ranks, bool areProcesses);

// The figures of --overlap as a table, with what its columns mean.
std::string overlapText(const std::vector<EntryOverlap>& overlap);

}  // namespace sluice::tools
