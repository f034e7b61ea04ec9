// A peer: another library that does the same work on the same data, for comparison.
//
// Resource types; one thread calls. The inputs and results of a peer must outlive it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/expected.h"
#include "tools/bench/cases.h"
#include "tools/io/tensor.h"

namespace sluice::tools {

struct PeerKind {
  std::string_view name;      // the word of --peer
  DType type = DType::kBF16;  // of rows and weights: BF16 or F32
  bool hasOwnLayouts = true;  // in which weights can be packed
};

// The names of all peers, also of those whose library is missing.
std::vector<std::string> peerNames();
// `name` must be one of those.
const PeerKind& peerKind(std::string_view name);

// The library and its version, for example "oneDNN 2.6.3". Error: it is missing; the message explains how to
// get it.
Expected<std::string> peerVersion(std::string_view name);

// Rows are stored expert by expert; weights have Sluice's layout: [E, H, 2I], gate then up, and [E, I, H].
struct PeerInputs {
  const RowsCase* rows = nullptr;
  // all of the type of the peer
  const std::byte* x = nullptr;   // [R, H]
  const std::byte* dy = nullptr;  // [R, H]
  const std::byte* gateUpWeight = nullptr;
  const std::byte* downWeight = nullptr;
  int threads = 1;
};

// The results of a run, in Sluice's layouts, written by the peer: rows in its type, gradients of weights in
// fp32.
struct PeerResults {
  Tensor gateUp, act, y;                    // forward
  Tensor actGrad, gateUpGrad, dx;           // backward: empty if none is measured
  Tensor gateUpWeightGrad, downWeightGrad;  // likewise
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
// outlive the peer. Errors: like peerVersion(); the library refuses.
Expected<std::unique_ptr<Peer>> makePeer(std::string_view name, const PeerInputs& inputs,
                                         const PeerMode& mode, bool backward, PeerResults& results);

}  // namespace sluice::tools
