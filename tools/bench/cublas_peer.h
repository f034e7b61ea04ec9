// cuBLAS as a peer on a GPU.
#pragma once

#include "tools/bench/product_peer.h"

namespace sluice::tools {

// In a loop over experts (cublasGemmEx), and since 12.5 grouped (cublasGemmGroupedBatchedEx: all experts by
// one call). Errors: a build or a machine without cuBLAS; what it said.
Expected<std::vector<NamedPeer>> makeCublasPeers(GpuBackend& backend);

}  // namespace sluice::tools
