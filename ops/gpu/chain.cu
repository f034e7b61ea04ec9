// The kernel of chained products for sm_90a with all kinds of products, in the shapes that
// tests/gpu/ptxas_test sees assembled.
#include "ops/gpu/chain.h"

namespace sluice::gpu {
namespace {

template <class Shape>
__global__ void __launch_bounds__(kChainThreads, 1) chainKernel(const __grid_constant__ Chain chain) {
  runChain<Shape>(chain);
}

using Narrow = ProductShape<128, 6>;
using Wide = ProductShape<256, 4>;
// of a block of sm_90
static_assert(sizeof(ChainMemory<Narrow>) <= 232'448 && sizeof(ChainMemory<Wide>) <= 232'448);

}  // namespace

// So that the kernels are compiled.
void useChains(const Chain& chain) {
  chainKernel<Narrow><<<1, kChainThreads, sizeof(ChainMemory<Narrow>)>>>(chain);
  chainKernel<Wide><<<1, kChainThreads, sizeof(ChainMemory<Wide>)>>>(chain);
}

}  // namespace sluice::gpu
