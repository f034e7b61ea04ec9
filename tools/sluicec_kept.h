// What sluicec says of what a derived backward finds kept.
#pragma once

#include <string>

#include "compiler/api/ir.h"

namespace sluice {

// "keeps 6,144 bytes a row (minimal: 4,608)", with the bytes a token where there are any; the choice made
// first. `graph` was derived to `keep` all or minimal.
std::string keptText(const Ir& graph, const std::string& keep);

}  // namespace sluice
