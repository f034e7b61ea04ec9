// Measures one case: Sluice on all threads and on one, peers, for a whole layer its products alone, and
// the probes of the machine. All take turns within each repetition, so that they see the machine in the same
// state.
//
// Value types and free functions. One thread calls.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/abi/kernels.h"
#include "tools/bench/bench_layer.h"
#include "tools/bench/cases.h"
#include "tools/bench/machine_probes.h"

namespace sluice::tools {

struct PeerSamples {
  std::string name;     // the word of --peer
  std::string version;  // peerVersion()
  std::string mode;     // the fastest one of all modes
  Samples samples;
  double difference = 0;  // |ours - theirs| / |theirs|, Frobenius, the maximum over the results of the pass
};

struct PassSamples {
  Pass pass = Pass::kForward;
  Work work;
  Samples sluice;
  std::optional<Samples> single;   // with one thread
  std::optional<Samples> bare;     // of a whole layer: only its products
  std::vector<PeerSamples> peers;  // in the order of --peer
};

struct CaseSamples {
  std::string name;
  RowsCase rows;  // of a whole layer: the experts of all ranks
  int ranks = 1;
  bool whole = false;
  std::vector<ProbeRates> probesOfAll, probesOfOne;  // by repetition
  std::vector<PassSamples> passes;
};

Expected<CaseSamples> measureRows(const RowsCase& rows, const BenchOptions& options, ops::Isa isa);

// `options.threads` is divided among the ranks. Errors: a peer is requested; fewer threads than ranks.
Expected<CaseSamples> measureLayer(const LayerCase& layer, const BenchOptions& options, ops::Isa isa);

}  // namespace sluice::tools
