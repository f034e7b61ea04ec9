// A run whose ranks are threads of this process.
#pragma once

#include "tools/cli/run_job.h"

namespace sluice::tools {

// Loads the inputs of all ranks, runs, writes all outputs or none, and prints the report. The result is the
// exit status.
Expected<int> runThreads(const Job& job);

}  // namespace sluice::tools
