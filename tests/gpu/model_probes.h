// Probes on the model of the hardware.
#pragma once

#include <cstdint>

#include "tools/gpu_check/probes.h"

namespace sluice {

// For backends of a ModelGroup. Launches have the seeds from this one on.
tools::ProbeMachine modelMachine(uint64_t seed);

}  // namespace sluice
