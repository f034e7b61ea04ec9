// Finds the fastest mode of a peer for each pass, and checks that the peer computes what Sluice computes.
//
// Resource type, one owner; one thread uses it.
#pragma once

#include <array>
#include <memory>

#include "tools/bench/bench_layer.h"
#include "tools/bench/measure_case.h"
#include "tools/bench/peer.h"

namespace sluice::tools {

class PeerContest {
 public:
  // Runs every mode a few times, keeps the fastest of each pass, and compares its results with those of
  // `layer` for the same inputs; `own` has the outputs that are bound to `layer`. Records mode and difference
  // in the passes of `result`. Errors: no such peer; the peer fails; its results differ from those of Sluice.
  Status hold(const BenchOptions& options, const PeerInputs& inputs, BenchLayer& layer, const TensorMap& own,
              CaseSamples& result);

  // Runs once in the mode that was chosen for the pass.
  Expected<Duration> run(Pass pass);

 private:
  Status chooseModes(const BenchOptions& options, CaseSamples& result);
  Status compare(BenchLayer& layer, const TensorMap& own, CaseSamples& result);
  Peer& chosen(Pass pass) { return *chosen_[static_cast<size_t>(pass)]; }

  PeerInputs inputs_;
  PeerResults results_;
  std::array<std::shared_ptr<Peer>, 2> chosen_;  // by pass
};

}  // namespace sluice::tools
