// The picture of a run, for papers and web pages. A free function of values.
#pragma once

#include <string>

#include "runtime/base/expected.h"
#include "tools/report/source.h"

namespace sluice::tools {

// For each rank a row of what was being sent to it, and a row per worker with its tasks and waits. Of more
// than 8 ranks the first 8, which the picture says. Error: there is no step to draw.
Expected<std::string> reportSvg(const ReportSource& source);

}  // namespace sluice::tools
