// The persistent kernel for sm_90a, and its launch.
#include <cuda_runtime_api.h>

#include "ops/gpu/chain.h"
#include "ops/gpu/chain_launch.h"

namespace sluice::gpu {
namespace {

template <class Shape>
__global__ void __launch_bounds__(kChainThreads, 1) chainKernel(const __grid_constant__ Launch launch) {
  runChain<Shape>(launch);
}

template <class Shape>
const char* launchShape(const Launch& launch, int blocks, cudaStream_t stream) {
  constexpr int kBytes = sizeof(ChainMemory<Shape>);
  static_assert(kBytes <= 232'448);  // of a block of sm_90
  const auto kernel = reinterpret_cast<const void*>(&chainKernel<Shape>);
  cudaError_t said = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  void* arguments[] = {const_cast<Launch*>(&launch)};
  if (said == cudaSuccess)
    said = cudaLaunchCooperativeKernel(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kChainThreads),
                                       arguments, kBytes, stream);
  return said == cudaSuccess ? nullptr : cudaGetErrorString(said);
}

}  // namespace

const char* launchChain(const Launch& launch, int columns, int blocks, void* stream) {
  const auto in = static_cast<cudaStream_t>(stream);
  return columns == 128 ? launchShape<NarrowShape>(launch, blocks, in)
                        : launchShape<WideShape>(launch, blocks, in);
}

}  // namespace sluice::gpu
