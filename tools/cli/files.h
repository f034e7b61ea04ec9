// Files of a rank, and text in and out of a tool. Free functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"
#include "tools/io/safetensors.h"

namespace sluice::tools {

// The file of each rank: `pattern` with every "{rank}" replaced. Errors: more than one rank, no "{rank}".
Expected<std::vector<std::string>> rankPaths(const std::string& pattern, int ranks);

// One map a path, in order. Errors begin with the path.
Expected<std::vector<TensorMap>> readRanks(const std::vector<std::string>& paths);

// Fails where a file cannot be written, before any time is spent on what to write into it.
Status probeWritable(const std::vector<std::string>& paths);

// Gives files that are written their names, one after another.
Status commitAll(std::vector<PendingFile>& files);

// A whole file, or standard input where the path is "-".
Expected<std::string> readText(const std::string& path);

// Writes to standard output. Errors: it cannot be written, as when a disk is full.
Status printText(std::string_view text);

// The parts of "a,b,c"; an empty text has one empty part.
std::vector<std::string> splitList(std::string_view text);

}  // namespace sluice::tools
