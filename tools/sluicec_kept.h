// The line of sluicec about what is kept for a derived backward.
#pragma once

#include <string>

#include "compiler/api/ir.h"

namespace sluice {

// "keeps 6,144 bytes per row (minimal: 4,608)", with the bytes per token if there are any; the chosen value
// comes first. `graph` was derived with `keep`, all, minimal or regather.
std::string keptText(const Ir& graph, const std::string& keep);

}  // namespace sluice
