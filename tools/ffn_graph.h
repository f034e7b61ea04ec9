// graphs/moe_ffn/forward.json, inside of the tools that compile a layer of their own.
#pragma once

#include <string_view>

namespace sluice::tools {

std::string_view ffnGraph();

}  // namespace sluice::tools
