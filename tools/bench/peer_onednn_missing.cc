// Stubs for builds without oneDNN.
#include "tools/bench/peer_products.h"

namespace sluice::tools {
namespace {

Error missing() {
  return Error{"this build has no oneDNN: install libdnnl-dev (apt-get install libdnnl-dev) and build again"};
}

}  // namespace

Expected<std::string> oneDnnVersion() { return missing(); }

Expected<std::unique_ptr<PeerProducts>> makeOneDnnProducts(const ProductsSetup&) { return missing(); }

}  // namespace sluice::tools
