// What sluicec says of what a derived backward finds kept.
#pragma once

#include <string>

#include "compiler/api/compile.h"

namespace sluice {

// "keeps 6,144 bytes a row (minimal: 4,608)", with the bytes a token where there are any; the choice made
// first. Errors: as compile().
Expected<std::string> keptText(const std::string& path, const Target& target, CompileOptions options);

}  // namespace sluice
