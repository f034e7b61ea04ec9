// Split propagation: one slot size for each run-time space, agreed by all nodes.
//
// A node declares a size or takes its producers'; a node without either takes what the rest of the program
// declares, else the target's. A program cuts a space in one way, since its entries share slot tables and
// saved tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/analysis/finding.h"

namespace sluice {

// A node in topological order. Every node reads or writes rows; a combine also writes tokens.
struct SplitNode {
  std::string name;
  std::vector<size_t> producers;  // smaller indices
  int32_t rows = 0;               // declared rows of a slot; 0: not declared
  int32_t tokens = 0;             // declared tokens of a slot; 0: not declared
};

struct SplitSizes {
  int32_t rows = 0;
  int32_t tokens = 0;
  friend bool operator==(const SplitSizes&, const SplitSizes&) = default;
};

// The sizes of all nodes. Finds: two nodes that cut a space differently (with both places), a size that is
// not a multiple of 16 (slots are rounded up to 16 rows).
Analyzed<SplitSizes> propagateSplits(std::span<const SplitNode> nodes, SplitSizes fallback);

}  // namespace sluice
