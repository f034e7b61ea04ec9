// The persistent kernel for sm_90a, and its launch.
#include <cuda_runtime_api.h>

#include <iterator>
#include <utility>

#include "ops/gpu/chain.h"
#include "runtime/abi/gpu/chain_plan.h"

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

template <int... kKinds>
const char* launchKind(int kind, const Launch& launch, int blocks, cudaStream_t stream,
                       std::integer_sequence<int, kKinds...> /*all*/) {
  const char* said = "an unknown activation";
  static_cast<void>(((kind == kKinds && (said = launchWith<kKinds>(launch, blocks, stream), true)) || ...));
  return said;
}

}  // namespace

const char* launchChain(const Launch& launch, const ActivationKind* activation, int blocks, void* stream) {
  const auto in = static_cast<cudaStream_t>(stream);
  if (activation == nullptr) return launchWith<kAnyActivation>(launch, blocks, in);
  return launchKind(static_cast<int>(*activation), launch, blocks, in,
                    std::make_integer_sequence<int, static_cast<int>(std::size(kActivations))>());
}

}  // namespace sluice::gpu
