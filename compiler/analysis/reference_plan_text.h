// Prints the static plan of the reference system.
//
// Free functions on values. Same plan, same text. Tasks are "node[expert,part]", experts of all ranks for
// dispatch and combine, of this rank for the others.
#pragma once

#include <string>

#include "compiler/analysis/reference_plan.h"

namespace sluice {

// For people: sizes, a line for each node, a line for each core.
std::string printPlan(const StaticPlan& plan);

// The same as one JSON object.
std::string printPlanJson(const StaticPlan& plan);

}  // namespace sluice
