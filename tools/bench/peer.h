// A peer: another library that does the same work on the same data, for comparison.
//
// Resource types; one thread calls. The inputs and results of a peer must outlive it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/expected.h"
#include "tools/bench/cases.h"

namespace sluice::tools {

// Rows are stored expert by expert; weights have Sluice's layout: [E, H, 2I], gate then up, and [E, I, H].
struct PeerInputs {
  const RowsCase* rows = nullptr;
  const BFloat16* x = nullptr;   // [R, H]
  const BFloat16* dy = nullptr;  // [R, H]
  const BFloat16* gateUpWeight = nullptr;
  const BFloat16* downWeight = nullptr;
  int threads = 1;
};

// The results of a run, in Sluice's layouts, written by the peer, with the shapes for the rows.
struct PeerResults {
  std::vector<BFloat16> gateUp, act, y;                 // forward
  std::vector<BFloat16> actGrad, gateUpGrad, dx;        // backward
  std::vector<float> gateUpWeightGrad, downWeightGrad;  // empty if no backward is measured
};

// How a peer is run: with weights as the library takes them, or in its own layout, made before any
// measurement or, if weights may change, in each pass; and with all threads in one product, or with one
// thread per expert.
struct PeerMode {
  bool packed = false;
  bool packsInPass = false;  // where they are packed
  bool expertsInParallel = false;
};

class Peer {
 public:
  virtual ~Peer() = default;
  virtual Status run(Pass pass) = 0;  // a backward needs a forward before it

  // Around runs: threads of the library that spin are there when a run begins, and gone when others are
  // measured.
  virtual void startThreads() = 0;
  virtual void endThreads() = 0;
};

// Makes everything that does not depend on the values of rows: primitives, packed weights. `results` must
// outlive the peer. Errors: this build has no peer (the message explains how to get it); the library refuses.
Expected<std::unique_ptr<Peer>> makePeer(const PeerInputs& inputs, const PeerMode& mode, bool backward,
                                         PeerResults& results);

// For example "oneDNN 2.6.3".
std::string peerVersion();

}  // namespace sluice::tools
