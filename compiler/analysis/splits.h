// Split propagation: finds the slot sizes of each run-time space on which all nodes agree.
//
// A node declares a size or takes its producers'; a node without either takes the size that the rest of the
// program declares, else the target's. A program cuts tokens by one size and rows by at most two, since its
// entries share slot tables and saved tensors: into slots, and into groups of neighbouring slots, whose size
// is a multiple of a slot's. Between nodes of different sizes rows are re-split.
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
  int32_t rows = 0;               // declared rows per slot; 0: not declared
  int32_t tokens = 0;             // declared tokens per slot; 0: not declared
  bool pieces = false;            // sends or returns rows: always cut by slots, the smaller of two sizes
};

struct SplitSizes {
  int32_t rows = 0;  // per slot
  int32_t tokens = 0;
  int32_t groups = 0;  // rows per group of slots; 0: rows are cut by one size
  friend bool operator==(const SplitSizes&, const SplitSizes&) = default;
};

// The default sizes of a graph with these limits: a slot longer than all rows an expert can get, or all
// tokens of a rank, would only raise limits.
SplitSizes withinLimits(const SplitSizes& sizes, int64_t ranks, int64_t maxTokens);

// The sizes of the program. Findings: two nodes that cut tokens differently, or cut rows by sizes of which
// neither is a multiple of the other (with both places), a third size of rows, pieces of the larger size, a
// size that is not a multiple of 16 (slots are rounded up to 16 rows).
Analyzed<SplitSizes> propagateSplits(std::span<const SplitNode> nodes, SplitSizes fallback);

// Rows per slot, or per group, by node: the number that the node declares, else the smallest number of its
// producers, else the rows of a slot.
std::vector<int32_t> rowsOfNodes(std::span<const SplitNode> nodes, const SplitSizes& sizes);

}  // namespace sluice
