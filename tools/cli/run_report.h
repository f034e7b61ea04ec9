// The texts that `sluice run` prints. Free functions on values; any thread.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/run_job.h"

namespace sluice::tools {

// Tables of all ranks. `apart`: the ranks are processes, each with its own memory.
std::string reportRun(const Job& job, const std::vector<RankFigures>& ranks, bool apart);

// The figures of --overlap as a table, with what its columns mean.
std::string overlapText(const std::vector<EntryOverlap>& overlap);

}  // namespace sluice::tools
