// The probes for sm_90a, and their launch.
#include <cuda_runtime_api.h>

#include "ops/gpu/probes.h"
#include "runtime/abi/gpu/probe_launch.h"

namespace sluice::gpu {
namespace {

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    probeKernel(const __grid_constant__ ProbeArguments arguments) {
  Kernel::run(arguments);
}

// All blocks run at the same time.
template <class Kernel>
cudaError_t start(const ProbeLaunch& launch) {
  const auto kernel = reinterpret_cast<const void*>(&probeKernel<Kernel>);
  const cudaError_t said =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::kSharedBytes);
  if (said != cudaSuccess) return said;
  void* values[] = {const_cast<ProbeArguments*>(&launch.arguments)};
  const auto blocks = static_cast<unsigned>(Kernel::kBlocks == 0 ? launch.blocks : Kernel::kBlocks);
  return cudaLaunchCooperativeKernel(kernel, dim3(blocks), dim3(Kernel::kThreads), values,
                                     Kernel::kSharedBytes, nullptr);
}

}  // namespace

const char* launchProbe(const ProbeLaunch& launch) {
  cudaError_t said = cudaSuccess;
  probes::withProbe(launch, [&](auto kernel) { said = start<decltype(kernel)>(launch); });
  if (said == cudaSuccess) said = cudaDeviceSynchronize();
  return said == cudaSuccess ? nullptr : cudaGetErrorString(said);
}

}  // namespace sluice::gpu
