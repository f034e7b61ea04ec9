// Prints the measurements of an OverlapProbe, as columns of a table and as JSON. Free functions of values.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/overlap/overlap.h"

namespace sluice::tools {

// Column heads and one line, of equal widths, without an end of line: the three times in ms, overlap
// efficiency, rows, MB and orders (pieces and signals) to other ranks, what the transport counted, processor
// time and switches of threads. `cpuUnits` as in figuresOf().
std::string overlapHeads();
std::string overlapLine(const EntryOverlap& overlap, int cpuUnits = 0);

// The figures and every sample.
nlohmann::ordered_json overlapJson(const EntryOverlap& overlap, int cpuUnits = 0);

// Reads the samples and counts that overlapJson() wrote. Error: another JSON.
Expected<EntryOverlap> overlapFromJson(const nlohmann::ordered_json& json);

}  // namespace sluice::tools
