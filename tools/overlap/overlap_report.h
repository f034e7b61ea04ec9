// Prints the measurements of an OverlapProbe, as columns of a table and as JSON. Free functions of values.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/overlap/columns.h"
#include "tools/overlap/overlap.h"

namespace sluice::tools {

// The three times in ms, overlap efficiency, rows, MB and orders (pieces and signals) to other ranks, what
// the transport counted, processor time and switches of threads. `cpuUnits` as in computeFigures().
std::span<const Column> overlapColumns();
std::vector<std::string> overlapCells(const EntryOverlap& overlap, int cpuUnits = 0);

// The figures and every sample.
nlohmann::ordered_json overlapJson(const EntryOverlap& overlap, int cpuUnits = 0);

// Reads the samples and counts that overlapJson() wrote. Error: another JSON.
Expected<EntryOverlap> overlapFromJson(const nlohmann::ordered_json& json);

}  // namespace sluice::tools
