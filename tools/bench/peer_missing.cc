// For builds without a peer.
#include "tools/bench/peer.h"

namespace sluice::tools {

std::string peerVersion() { return {}; }

Expected<std::unique_ptr<Peer>> makePeer(const PeerInputs&, const PeerMode&, bool, PeerResults&) {
  return Error{
      "this build has no peer 'onednn': install libdnnl-dev (apt-get install libdnnl-dev) and build again"};
}

}  // namespace sluice::tools
