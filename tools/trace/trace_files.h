// Reads traces from files: one, or one per rank, put together as one.
//
// A free function; any thread.
#pragma once

#include <string>
#include <vector>

#include "tools/trace/read_trace.h"

namespace sluice::tools {

// "{rank}" in the path stands for the files of the ranks of a job, of which some may be missing. Then a
// program has a trace of every rank, empty if no file has it. Groups of ranks with the same program become
// several programs. Times of files with other clocks than the first file's are aligned at the last exchange
// that they have in common, or else at their ends. Errors begin with the path: from parseTrace(); no file;
// times that cannot be of one job.
Expected<std::vector<TracedProgram>> readTrace(const std::string& path);

}  // namespace sluice::tools
