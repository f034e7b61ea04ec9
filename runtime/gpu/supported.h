// What the persistent kernel of ops/gpu has no code for.
#pragma once

#include "runtime/exec/plan.h"

namespace sluice {

bool hasActivation(const Family& family);

// Error: names a family that it cannot run, and why.
Status checkForGpu(const Plan& plan);

}  // namespace sluice
