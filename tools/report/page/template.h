// The page of `sluice report`: HTML, styles and script in one text, made when Sluice is built.
#pragma once

#include <string_view>

namespace sluice::tools {

// The page of a report with the line "@DATA@" in place of its data; empty if esbuild or d3 were missing when
// Sluice was built.
std::string_view pageTemplate();

}  // namespace sluice::tools
