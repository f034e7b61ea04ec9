// The graph that sluice doctor compiles and runs: graphs/moe_ffn/forward.json.
#pragma once

#include <string_view>

namespace sluice::tools {

std::string_view jobGraph();

}  // namespace sluice::tools
