// What sluicec prints of a compilation besides IR and programs. Free functions.
#pragma once

#include <string>

#include "compiler/api/compile.h"

namespace sluice {

// `path` is that of the graph, `kind` is "text" or "json".
std::string explanationOf(const Compiled& compiled, const std::string& path, const std::string& kind);

// Graph and families for Graphviz.
std::string dotOf(const Compiled& compiled, const std::string& path);

// A line a phase, in milliseconds, and their sum.
std::string timesOf(const Compiled& compiled);

}  // namespace sluice
