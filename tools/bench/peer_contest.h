// Finds the strongest mode of a peer for each pass, and checks that the peer computes what Sluice computes.
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
  // Runs every mode a few times, keeps the quickest of each pass, and compares what it made with what `layer`
  // makes of the same inputs; `own` has the outputs bound to `layer`. Says mode and difference in the passes
  // of `result`. Errors: no such peer; one that fails; results that are not those of Sluice.
  Status hold(const BenchOptions& options, const PeerInputs& inputs, BenchLayer& layer, const TensorMap& own,
              CaseSamples& result);

  // One run of the mode that was chosen for the pass.
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
