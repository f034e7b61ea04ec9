// The rows of a plan: what simulation says of each layout, as text and as JSON. Value types and free
// functions of values.
#pragma once

#include <string>
#include <vector>

#include "runtime/program/program.h"
#include "runtime/sim/sim_result.h"
#include "tools/bench/cases.h"
#include "tools/plan/layouts.h"
#include "tools/simulate/device.h"

namespace sluice::tools {

struct PlannedLayout {
  Layout layout;
  std::vector<std::string> entries;  // their names
  std::vector<double> seconds;       // by entry, until the last rank ends
  double tokensPerSecond = 0;        // of all ranks
  double use = 0;                    // part of the time of matrix (or unified) cores in which they ran tasks
  double exposed = 0;                // seconds, mean of the ranks: rows on their way, and nobody multiplied
  double memory = 0;                 // bytes of a rank in a balanced step: the runtime's and the caller's
  std::string bound;                 // what most of the time of the rank that ends last is
};

// `results`: one per entry, in order.
PlannedLayout planned(const Layout& layout, const TaskProgram& program, const LayerCase& layer,
                      const std::vector<SimResult>& results);

// With a mark at the fastest layout of each number of ranks. Slots have a column, and a field of the JSON, if
// any row was compiled with given ones.
std::string planText(const LayerCase& layer, const std::string& target, const std::string& routing,
                     const std::vector<PlannedLayout>& rows);
std::string planJson(const LayerCase& layer, const std::string& target, const std::string& routing,
                     const std::vector<PlannedLayout>& rows);

}  // namespace sluice::tools
