#include "tests/gpu/chain_kernel.h"

#include SLUICE_CHAIN_HEADER

namespace sluice::gpu {
namespace {

template <class Shape>
std::string runShape(model::Launch launch, const Chain& chain) {
  launch.threads = kChainThreads;
  launch.sharedBytes = sizeof(ChainMemory<Shape>);
  return model::run(launch, [&chain] { runChain<Shape>(chain); });
}

}  // namespace

std::string runChainKernel(model::Launch launch, int columns, const Chain& chain) {
  return columns == 128 ? runShape<ProductShape<128, 3>>(launch, chain)
                        : runShape<ProductShape<256, 2>>(launch, chain);
}

}  // namespace sluice::gpu
