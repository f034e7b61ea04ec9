// For builds without a peer.
#include "tools/bench/peer.h"

namespace sluice::tools {

std::vector<std::string> peerNames() { return {}; }

std::string peerVersion(std::string_view) { return {}; }

Expected<std::unique_ptr<Peer>> makePeer(std::string_view name, const PeerInputs&, const PeerMode&, bool,
                                         PeerResults&) {
  return Error{std::string("this build has no peer '") + std::string(name) +
               "': install libdnnl-dev (apt-get install libdnnl-dev) and build again"};
}

}  // namespace sluice::tools
