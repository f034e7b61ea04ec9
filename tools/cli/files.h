// Files of a rank, and text in and out of a tool. Free functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"
#include "tools/io/safetensors.h"

namespace sluice::tools {

// The file of each rank: `pattern` with every "{rank}" replaced. Error: more than one rank, but no "{rank}".
Expected<std::vector<std::string>> rankPaths(const std::string& pattern, int ranks);

// Fails if a file cannot be written, before any time is spent on its content.
Status probeWritable(const std::vector<std::string>& paths);

// Gives written files their names, one after another.
Status commitAll(std::vector<PendingFile>& files);

// Reads a whole file, or standard input if the path is "-".
Expected<std::string> readText(const std::string& path);

// Writes a whole file, which is complete or as it was before.
Status writeText(const std::string& path, std::string_view text);

// Writes to standard output. Errors: it cannot be written, for example because a disk is full.
Status printText(std::string_view text);

// The parts of "a,b,c"; an empty text has one empty part.
std::vector<std::string> splitList(std::string_view text);

}  // namespace sluice::tools
