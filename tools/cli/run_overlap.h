// `sluice run --overlap`: after the usual runs, every entry with all of its work, with communication alone
// and with computation alone, in turn.
//
// Free functions. measureOverlap() is collective, the others any thread's.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/pending_file.h"
#include "tools/cli/run_job.h"
#include "tools/overlap/overlap.h"

namespace sluice::tools {

// As many repetitions as the job has, and one before that does not count. The same at all ranks. Binds other
// outputs, which are gone when it returns: only the context's end may follow. Errors: those of Context.
Expected<std::vector<EntryOverlap>> measureOverlap(const Job& job, Transport& transport, Context& context,
                                                   const TensorMap& inputs, int64_t tokens);

// A table, with what its columns mean.
std::string overlapText(const std::vector<EntryOverlap>& overlap);

// Job::overlapJson, written but for its name.
Expected<PendingFile> stageOverlap(const Job& job, const std::vector<EntryOverlap>& overlap);

}  // namespace sluice::tools
