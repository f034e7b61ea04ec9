// A report of one program or run, or of two side by side: a page, or text; and the picture of a run, for
// papers and web pages.
//
// Free functions of values.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "tools/report/run.h"

namespace sluice::tools {

// One file without links to others. Errors: Sluice was built without what makes the page; more spans or
// tracks than it holds (found, expected).
Expected<std::string> reportHtml(const std::vector<ReportSource>& sources);

// The facts and tables of a run.
std::string runText(const ReportSource& source);

// The facts and tables of each source's program and, if it has one, its run, one source after the other.
std::string reportText(const std::vector<ReportSource>& sources);

// For each rank a row of what was being sent to it, and a row per worker with its tasks and waits. Of more
// than 8 ranks the first 8, which the picture says. Error: there is no step to draw.
Expected<std::string> reportSvg(const ReportSource& source);

}  // namespace sluice::tools
