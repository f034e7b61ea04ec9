// What the persistent kernel of ops/gpu has no code for.
#pragma once

#include "runtime/exec/plan.h"

namespace sluice {

// Error: names a family that it cannot run, and why.
Status checkForGpu(const Plan& plan);

}  // namespace sluice
