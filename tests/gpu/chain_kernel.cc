#include "tests/gpu/chain_kernel.h"

#include SLUICE_CHAIN_HEADER

namespace sluice::gpu {
namespace {

template <class Shape>
std::string runShape(model::Launch how, const Launch& launch) {
  how.threads = kChainThreads;
  how.sharedBytes = sizeof(ChainMemory<Shape>);
  return model::run(how, [&launch] { runChain<Shape>(launch); });
}

}  // namespace

std::string runChainKernel(model::Launch how, int columns, const Launch& launch) {
  return columns == 128 ? runShape<NarrowShape>(how, launch) : runShape<WideShape>(how, launch);
}

}  // namespace sluice::gpu
