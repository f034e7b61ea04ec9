// Split propagation: the slot sizes of each run-time space, agreed by all nodes.
//
// A node declares a size or takes its producers'; a node without either takes what the rest of the program
// declares, else the target's. A program cuts tokens in one way and rows in two at most, since its entries
// share slot tables and saved tensors: into slots, and into groups of neighbouring slots, whose rows are a
// multiple of those of a slot. Between nodes of different sizes rows are re-split.
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
  bool pieces = false;            // sends or returns rows: always by slots, the smaller of two sizes
};

struct SplitSizes {
  int32_t rows = 0;  // of a slot
  int32_t tokens = 0;
  int32_t groups = 0;  // rows of a group of slots; 0: rows are cut in one way
  friend bool operator==(const SplitSizes&, const SplitSizes&) = default;
};

// Sizes that no graph declares, for one with these limits: a slot longer than all rows an expert can get, or
// all tokens of a rank, only moves limits up.
SplitSizes withinLimits(const SplitSizes& sizes, int64_t ranks, int64_t maxTokens);

// The sizes of the program. Finds: two nodes that cut tokens differently, or rows by sizes of which neither
// is a multiple of the other (with both places), a third size of rows, pieces of the larger one, a size that
// is not a multiple of 16 (slots are rounded up to 16 rows).
Analyzed<SplitSizes> propagateSplits(std::span<const SplitNode> nodes, SplitSizes fallback);

// Rows of a slot, or of a group, by node: as declared; the smallest of its producers'; without these that of
// a slot.
std::vector<int32_t> rowsOfNodes(std::span<const SplitNode> nodes, const SplitSizes& sizes);

}  // namespace sluice
