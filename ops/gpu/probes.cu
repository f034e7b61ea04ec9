// The probes for sm_90a, and their launch.
#include <cuda_runtime_api.h>

#include "ops/gpu/probe_launch.h"
#include "ops/gpu/probes.h"

namespace sluice::gpu {
namespace {

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    probeKernel(const __grid_constant__ ProbeArguments arguments) {
  Kernel::run(arguments);
}

// All blocks run at the same time.
template <class Kernel>
cudaError_t start(const ProbeArguments& arguments) {
  const auto kernel = reinterpret_cast<const void*>(&probeKernel<Kernel>);
  const cudaError_t said =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::kSharedBytes);
  if (said != cudaSuccess) return said;
  void* values[] = {const_cast<ProbeArguments*>(&arguments)};
  return cudaLaunchCooperativeKernel(kernel, dim3(Kernel::kBlocks), dim3(Kernel::kThreads), values,
                                     Kernel::kSharedBytes, nullptr);
}

}  // namespace

const char* launchProbe(const ProbeLaunch& launch) {
  cudaError_t said = cudaSuccess;
  probes::withProbe(launch, [&](auto kernel) { said = start<decltype(kernel)>(launch.arguments); });
  if (said == cudaSuccess) said = cudaDeviceSynchronize();
  return said == cudaSuccess ? nullptr : cudaGetErrorString(said);
}

}  // namespace sluice::gpu
