#include "tools/bench/peer.h"

namespace sluice::tools {

std::string peerModeName(const PeerMode& mode) {
  return std::string(mode.packed ? "packed weights" : "plain weights") +
         (mode.expertsInParallel ? ", a thread per expert" : ", threads in products");
}

PeerResults makePeerResults(const RowsCase& c, bool backward) {
  const auto rows = static_cast<size_t>(c.allRows()), hidden = static_cast<size_t>(c.hidden);
  const auto inter = static_cast<size_t>(c.inter), weight = static_cast<size_t>(c.experts()) * hidden * inter;
  PeerResults results;
  results.gateUp.resize(rows * 2 * inter);
  results.act.resize(rows * inter);
  results.y.resize(rows * hidden);
  if (!backward) return results;
  results.actGrad.resize(rows * inter);
  results.gateUpGrad.resize(rows * 2 * inter);
  results.dx.resize(rows * hidden);
  results.gateUpWeightGrad.resize(2 * weight);
  results.downWeightGrad.resize(weight);
  return results;
}

}  // namespace sluice::tools
