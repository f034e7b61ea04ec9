// What sluicec prints about a compilation besides IR and programs. Free functions.
#pragma once

#include <string>

#include "compiler/api/compile.h"

namespace sluice {

// `kind` is "text" or "json".
std::string explanationOf(const Compiled& compiled, const std::string& kind);

// Graph and families for Graphviz.
std::string dotOf(const Compiled& compiled);

// One line per phase, in milliseconds, and their sum.
std::string timesOf(const Compiled& compiled);

}  // namespace sluice
