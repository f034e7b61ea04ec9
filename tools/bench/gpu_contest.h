// GpuContest: the products of an expert layer as a ProductPeer computes them, and whether they are Sluice's.
//
// Resource type, one owner, one thread. What it is made of must outlive it.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "tools/bench/product_peer.h"

namespace sluice::tools {

class GpuContest {
 public:
  // Memory for the results of the peers, which take turns, for the products of `layer`.
  static Expected<GpuContest> create(GpuBackend& backend, const RowsCase& rows, const GpuLayer& layer,
                                     bool backward);

  struct Verdict {
    double difference = 0;  // from Sluice: the most of the results of a pass
    std::string note;       // what the peer does otherwise, or empty
  };
  // Runs the products of the pass, with activations in between by Sluice's kernels on the host, and compares
  // the results with the results of the layer's last run of the pass, with the same rows and weights. A
  // backward comes after a forward of the same peer. Errors: the peer refuses a product; a difference above
  // 3%.
  Expected<Verdict> check(NamedPeer& peer, Pass pass);

  // Runs the products of the last check of this peer and pass, and nothing else.
  Expected<StepSeconds> run(NamedPeer& peer, Pass pass);

 private:
  enum Name { kGateUp, kAct, kY, kActGrad, kGateUpGrad, kDx, kGateUpWeightGrad, kDownWeightGrad, kNames };
  // Products of both passes, in order.
  enum Product { kUp, kDown, kActGradOf, kRowsGrad, kDownGrad, kGateUpGradOf, kProducts };
  using Numbers = std::array<size_t, kProducts>;

  GpuContest(GpuBackend& backend, const RowsCase& rows, const GpuLayer& layer)
      : backend_(backend), rows_(rows), layer_(layer) {}
  GroupedProduct makeGroupedProduct(Product product) const;
  Expected<StepSeconds> runOne(NamedPeer& peer, Product product);
  Status activate(Pass pass);
  Expected<double> differenceFrom(Pass pass);

  GpuBackend& backend_;
  const RowsCase& rows_;
  const GpuLayer& layer_;
  std::array<GpuTensor, kNames> results_;
  std::map<const NamedPeer*, Numbers> numbers_;
};

}  // namespace sluice::tools
