// sluicec --policy=reference: prints the static plan of the reference system for a graph file.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/target/target.h"
#include "runtime/base/expected.h"

namespace sluice {

// The plan as text, or as JSON. `sets` are symbols of the graph, and three of the policy: tp (1), seq (the
// most tokens of the graph) and rank (0). Errors: a target without cube and vector cores, a file that is no
// graph file, and those of planReference(); whole reports that begin with their place, or with "error:".
Expected<std::string> printReferencePlan(const std::string& path, const Target& target,
                                         const std::vector<std::pair<std::string, int64_t>>& sets,
                                         bool asJson);

}  // namespace sluice
