// What sluicec prints about a compilation besides IR and programs. Free functions.
#pragma once

#include <string>

#include "compiler/api/compile.h"

namespace sluice {

// `kind` is "text" or "json".
std::string formatExplanation(const Compiled& compiled, const std::string& kind);

// Graph and families for Graphviz.
std::string formatDot(const Compiled& compiled);

// "keeps 6,144 bytes per row (minimal: 4,608)", a line with the bytes per token if there are any; the chosen
// value comes first. `keep` is how the backward was derived: all, minimal or regather.
std::string keptText(const Compiled& compiled, const std::string& keep);

// One line per phase, in milliseconds, and their sum.
std::string formatTimes(const Compiled& compiled);

}  // namespace sluice
