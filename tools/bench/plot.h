// Draws measurements as a picture: for each case, bars of the share of the register peak that each pass
// reaches, and beside them the peer's bars if it was measured. Free function of values.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/report.h"

namespace sluice::tools {

// An SVG file. The scale ends at 100%, or later if a share is larger.
std::string drawPlot(const std::vector<CaseSamples>& all, const BenchOptions& options,
                     const Machine& machine);

}  // namespace sluice::tools
