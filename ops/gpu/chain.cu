// The persistent kernel for sm_90a, in the shapes that tests/gpu/ptxas_test sees assembled.
#include "ops/gpu/chain.h"

namespace sluice::gpu {
namespace {

template <class Shape>
__global__ void __launch_bounds__(kChainThreads, 1) chainKernel(const __grid_constant__ Launch launch) {
  runChain<Shape>(launch);
}

using Narrow = ProductShape<128, 6>;
using Wide = ProductShape<256, 4>;
// of a block of sm_90
static_assert(sizeof(ChainMemory<Narrow>) <= 232'448 && sizeof(ChainMemory<Wide>) <= 232'448);

}  // namespace

// So that the kernels are compiled.
void useChains(const Launch& launch) {
  chainKernel<Narrow><<<1, kChainThreads, sizeof(ChainMemory<Narrow>)>>>(launch);
  chainKernel<Wide><<<1, kChainThreads, sizeof(ChainMemory<Wide>)>>>(launch);
}

}  // namespace sluice::gpu
