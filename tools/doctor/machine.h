// Facts about this machine that matter to Sluice. Free function; starts commands, so the process must have
// one thread.
#pragma once

#include "tools/doctor/finding.h"

namespace sluice::tools {

Findings describeMachine();

}  // namespace sluice::tools
