// Measures the cases of `sluice bench` on a GPU: Sluice with tensors in its memory, and peers on the same
// products of the same rows. All take turns within each repetition.
//
// Value types and free functions. One thread calls.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/api/program.h"
#include "tools/bench/product_peer.h"

namespace sluice::tools {

// The programs of a case.
struct GpuPrograms {
  Program products;              // of compileRows() or compileLayerRows()
  std::optional<Program> whole;  // of compileLayer(), if there is a layer
};

struct GpuPlan {
  int repeat = 11;
  bool forward = true;
  bool backward = true;
};

// One of those that take turns, in one pass.
struct GpuLine {
  std::string what;              // "whole layer", "products", or the name of a peer
  std::vector<StepSeconds> all;  // by repetition; empty after an error
  std::optional<double> difference;
  std::string note;   // what a peer does otherwise
  std::string error;  // why it was not measured
};

struct GpuPass {
  Pass pass = Pass::kForward;
  Work work;  // of the products
  std::vector<GpuLine> lines;
};

struct GpuSamples {
  std::string name;
  RowsCase rows;  // as routed
  std::vector<GpuPass> passes;
  std::string withoutPeers;  // why no peer took part; empty: they did
};

// Errors: Sluice cannot run the case. What a peer cannot do is an error of its line.
Expected<GpuSamples> measureOnGpu(const GpuCase& c, const GpuPrograms& programs, const GpuPlan& plan,
                                  const BackendMaker& backends, const PeersOf& peersOf);

}  // namespace sluice::tools
