// This is what a build without CUDA has instead.
#include "runtime/abi/gpu/probe_launch.h"
#include "runtime/gpu/cuda/without.h"

namespace sluice {

const char* gpu::launchProbe(const ProbeLaunch& /*launch*/) { return kWithout; }

}  // namespace sluice
