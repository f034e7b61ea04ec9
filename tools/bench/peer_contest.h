// Finds the fastest mode of a peer for each pass, and checks that the peer computes what Sluice computes.
//
// Resource type, one owner; one thread uses it.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "tools/bench/bench_layer.h"
#include "tools/bench/measure_case.h"
#include "tools/bench/peer.h"

namespace sluice::tools {

class PeerContest {
 public:
  // `name`: one of peerNames().
  explicit PeerContest(std::string name) : name_(std::move(name)) {}

  // Runs every mode a few times, keeps the fastest of each pass, and compares its results with the results of
  // `layer` for the same inputs; `own` has the tensors that are bound to `layer`. Appends the peer with mode
  // and difference to the passes of `result`. Errors: the library is missing; the peer fails; its results
  // differ from Sluice's.
  Status hold(const BenchOptions& options, const RowsCase& rows, BenchLayer& layer, const TensorMap& own,
              CaseSamples& result);

  // Runs once in the mode that was chosen for the pass.
  Expected<Duration> run(Pass pass);

 private:
  Status chooseModes(const BenchOptions& options, CaseSamples& result);
  Status compare(BenchLayer& layer, const TensorMap& own, CaseSamples& result);
  Peer& chosen(Pass pass) { return *chosen_[static_cast<size_t>(pass)]; }

  const std::string name_;
  std::string version_;
  TensorMap widened_;  // inputs of a peer in fp32
  PeerInputs inputs_;
  PeerResults results_;
  std::array<std::shared_ptr<Peer>, 2> chosen_;  // by pass
};

}  // namespace sluice::tools
