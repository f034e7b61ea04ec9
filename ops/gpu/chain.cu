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

// Each activation has a kernel of its own: together their code would not fit into the caches of instructions.
template <int kActivation>
const char* launchWith(const Launch& launch, int blocks, cudaStream_t stream) {
  static_assert(WideShape::kColumns == kLaunchedColumns);
  using Shape = ProductShape<WideShape::kColumns, WideShape::kStages, kActivation>;
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

template <ActivationKind kKind>
const char* launchOf(const Launch& launch, int blocks, cudaStream_t stream) {
  return launchWith<static_cast<int>(kKind)>(launch, blocks, stream);
}

}  // namespace

const char* launchChain(const Launch& launch, const ActivationKind* activation, int blocks, void* stream) {
  const auto in = static_cast<cudaStream_t>(stream);
  if (activation == nullptr) return launchWith<kAnyActivation>(launch, blocks, in);
  switch (*activation) {
    using enum ActivationKind;
    case kSwiglu:
      return launchOf<kSwiglu>(launch, blocks, in);
    case kSilu:
      return launchOf<kSilu>(launch, blocks, in);
    case kSwigluClamp:
      return launchOf<kSwigluClamp>(launch, blocks, in);
    case kGeglu:
      return launchOf<kGeglu>(launch, blocks, in);
    case kReglu:
      return launchOf<kReglu>(launch, blocks, in);
    case kSquaredReglu:
      return launchOf<kSquaredReglu>(launch, blocks, in);
    case kRelu2:
      return launchOf<kRelu2>(launch, blocks, in);
    case kSwigluOai:
      return launchOf<kSwigluOai>(launch, blocks, in);
  }
  return "an unknown activation";
}

}  // namespace sluice::gpu
