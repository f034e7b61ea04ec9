// The main job, tried: a layer is compiled, runs forward and backward on two ranks and is checked against
// double precision. Free function; starts the tools, so the process must have one thread.
#pragma once

#include <string>

#include "runtime/base/expected.h"
#include "tools/doctor/finding.h"

namespace sluice::tools {

// `folder`: the folder of the tools; `withMpi`: whether ranks of mpirun are tried, too. Each step has a
// minute at most. After one that fails, the steps that need it are left out. Error: no folder for files can
// be made.
Expected<Findings> tryMainJob(const std::string& folder, bool withMpi);

// Whether all that the main job needs works: all but mpirun.
bool worksAlone(const Findings& job);

}  // namespace sluice::tools
