// What a simulation gave, as text and as JSON. Free functions of values.
#pragma once

#include <string>
#include <vector>

#include "runtime/program/program.h"
#include "runtime/sim/sim_result.h"
#include "tools/simulate/steps.h"

namespace sluice::tools {

// The largest number of rows of a rank over the mean; 1 without rows.
double rowSkew(const SimResult& result);

// The rank that ends last; of several the first.
size_t slowestRank(const SimResult& result);

// Part of the time of the cores of that kind, until the last rank ends, in which they ran tasks. Unless there
// is a worker per core and cores are of two kinds: of all workers, for kUnified.
double coreUse(const TaskProgram& program, const SimResult& result, CoreKind kind);

// Tables by entry and family, and of the rank that ends last. `results`: one per simulated entry.
std::string simulationText(const TaskProgram& program, const SimDevice& device,
                           const std::vector<SimResult>& results);

// Everything in SimResult but traces; times in seconds.
std::string simulationJson(const TaskProgram& program, const SimDevice& device,
                           const std::vector<SimResult>& results);

}  // namespace sluice::tools
