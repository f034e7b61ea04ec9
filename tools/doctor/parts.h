// Optional parts of Sluice, and the libraries that they need. Free function; starts commands, so the process
// must have one thread.
#pragma once

#include <string>

#include "tools/doctor/finding.h"

namespace sluice::tools {

// `folder`: the folder of the tools.
Findings findParts(const std::string& folder);

}  // namespace sluice::tools
