// Fusion: which nodes of an entry become one task family.
//
// A fused family gives the same bits as the two that it replaces: the intermediate result is rounded as if it
// were stored, and a factor moves into a product only if it is a power of two, so that no rounding changes
// (unless a value leaves the range of normal numbers).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sluice {

enum class FusionRole : uint8_t {
  kGmm = 0,             // reads rows, weight
  kWeightGrad = 1,      // reads a, b, perhaps a row scale
  kActivation = 2,      // reads gate_up
  kActivationGrad = 3,  // reads act_grad, gate_up, perhaps weights
  kScale = 4,           // reads a value, multiplies it by one number
  kOther = 5,
  kBiasedGmm = 6,  // a gmm that adds a bias after its factor: its result cannot take another factor
};

// A node in topological order; tensors are numbered from 0 to FusionGraph::kept.size() - 1.
struct FusionNode {
  FusionRole role = FusionRole::kOther;
  float alpha = 1;  // of a product or a scale
  std::vector<size_t> reads;
  std::vector<size_t> writes;

  // What a scale multiplies, or what an activation reads that may be the product of a gmm; and the result.
  size_t value() const { return reads.front(); }
  size_t result() const { return writes.front(); }
};

struct FusionGraph {
  std::vector<FusionNode> nodes;
  std::vector<bool> kept;  // by tensor: it is an output, or saved for a later entry
};

// A scale that disappears: its readers read its input instead, and the factor of each product in `into` is
// multiplied by its factor, once per occurrence. Apply in the order of the list.
struct FoldedScale {
  size_t scale;
  std::vector<size_t> into;
  bool intoProducer;  // the product then writes the scaled tensor
};

// A scale folds into the gmm whose product only it reads; else into its readers, if all are products.
std::vector<FoldedScale> foldScales(const FusionGraph& graph);

struct FusedPair {
  size_t gmm;
  size_t reader;
  bool keepsProduct;  // another node needs the product, too
};

// A gmm and an activation of its product.
std::vector<FusedPair> fuseActivations(const FusionGraph& graph);

// A gmm without a bias and an activation gradient that is the only reader of its product, as the incoming
// gradient.
std::vector<FusedPair> fuseActivationGrads(const FusionGraph& graph);

// What the pass fuse may fuse; --fuse=all|none|LIST.
struct FusionKinds {
  bool activation = true;
  bool activationGrad = true;
  bool scale = true;
  friend bool operator==(const FusionKinds&, const FusionKinds&) = default;
};

// Sets `kinds` by the words all, none, activation, activation-grad, scale; no word means all. Returns the
// first invalid word, or empty; all and none must stand alone.
std::string parseFusionKinds(std::span<const std::string> words, FusionKinds& kinds);

}  // namespace sluice
