// The files of a run, written but for their names, so that all of them appear or none.
//
// Free functions; any thread.
#pragma once

#include <vector>

#include "runtime/base/pending_file.h"
#include "tools/cli/run_rank.h"

namespace sluice::tools {

// Fails where a file of the ranks [first, last) cannot be written, before any time is spent on it; with
// `trace`, also those of all ranks together.
Status probeOutputs(const Job& job, int first, int last, bool trace);

// Asked for where the job has `out`.
Expected<PendingFile> stageOutputs(const Job& job, int rank, const TensorMap& outputs);
Expected<PendingFile> stageTrace(const Job& job, const std::vector<Trace>& ranks);

Status commitAll(std::vector<PendingFile>& files);

}  // namespace sluice::tools
