// Fusion: which nodes of an entry become one task family.
//
// A fused family gives the bits of the two it replaces: what the first would have stored is rounded as if it
// were stored, and a factor moves into a product only where it is a power of two, so that no rounding moves
// with it (unless a value leaves the range of normal numbers).
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
  kScale = 4,           // reads a value
  kOther = 5,
};

// A node in topological order; tensors are numbers less than FusionGraph::kept.size().
struct FusionNode {
  FusionRole role = FusionRole::kOther;
  float alpha = 1;  // of a product or a scale
  std::vector<size_t> reads;
  std::vector<size_t> writes;
};

struct FusionGraph {
  std::vector<FusionNode> nodes;
  std::vector<bool> kept;  // by tensor: an output, or saved for a later entry
};

// A scale that disappears: its readers take what it read, and the products `into` are multiplied by its
// factor, once per occurrence. To be done in the order of the list.
struct FoldedScale {
  size_t scale;
  std::vector<size_t> into;
  bool intoProducer;  // the product takes the place of the scaled tensor
};

// Into the gmm whose product only the scale reads; else into its readers, if all are products.
std::vector<FoldedScale> foldScales(const FusionGraph& graph);

struct FusedPair {
  size_t gmm;
  size_t reader;
  bool keepsProduct;  // somebody else needs the product too
};

// A gmm and an activation of its product.
std::vector<FusedPair> fuseActivations(const FusionGraph& graph);

// A gmm and the activation's gradient, the only reader of its product, as the incoming gradient.
std::vector<FusedPair> fuseActivationGrads(const FusionGraph& graph);

// What the pass fuse may do; --fuse=all|none|LIST.
struct FusionKinds {
  bool activation = true;
  bool activationGrad = true;
  bool scale = true;
  friend bool operator==(const FusionKinds&, const FusionKinds&) = default;
};

// Sets `kinds` by the words all, none, activation, activation-grad, scale; no word is all. Returns the first
// word that is none of these, or empty; all and none stand alone.
std::string parseFusionKinds(std::span<const std::string> words, FusionKinds& kinds);

}  // namespace sluice
