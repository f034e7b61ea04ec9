#include "compiler/analysis/fusion.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace sluice {
namespace {

// The tensors of a graph with their writer and readers; a node that reads a tensor twice is listed twice.
struct Uses {
  explicit Uses(const FusionGraph& graph) : writer(graph.kept.size()), readers(graph.kept.size()) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (size_t tensor : graph.nodes[n].reads) readers[tensor].push_back(n);
      for (size_t tensor : graph.nodes[n].writes) writer[tensor] = n;
    }
  }

  std::vector<std::optional<size_t>> writer;
  std::vector<std::vector<size_t>> readers;
};

// Whether multiplication by it is exact.
bool isPowerOfTwo(float alpha) {
  int exponent = 0;
  return std::isfinite(alpha) && std::abs(std::frexp(alpha, &exponent)) == 0.5F;
}

class ScaleFolder {
 public:
  explicit ScaleFolder(const FusionGraph& graph) : graph_(graph), uses_(graph) {
    for (const FusionNode& node : graph.nodes) alpha_.push_back(node.alpha);
  }

  std::vector<FoldedScale> run() {
    std::vector<size_t> scales;
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (graph_.nodes[n].role == FusionRole::kScale && isPowerOfTwo(graph_.nodes[n].alpha))
        scales.push_back(n);
    // folding one scale may make another foldable
    while (std::erase_if(scales, [this](size_t scale) { return visit(scale); }) > 0) continue;
    return std::move(folded_);
  }

 private:
  bool isProduct(size_t n) const {
    const FusionRole role = graph_.nodes[n].role;
    return role == FusionRole::kGmm || role == FusionRole::kBiasedGmm || role == FusionRole::kWeightGrad;
  }

  bool visit(size_t scale) {
    const size_t value = graph_.nodes[scale].value(), scaled = graph_.nodes[scale].result();
    std::vector<size_t>& readers = uses_.readers[scaled];
    const std::optional<size_t> producer = uses_.writer[value];
    const bool isOnlyReader = uses_.readers[value].size() == 1 && !graph_.kept[value];
    if (producer && graph_.nodes[*producer].role == FusionRole::kGmm && isOnlyReader &&
        fits({*producer}, scale)) {
      fold(scale, {*producer}, true);
      uses_.writer[scaled] = *producer;
      return true;
    }
    if (!graph_.kept[scaled] && !readers.empty() &&
        std::all_of(readers.begin(), readers.end(), [&](size_t n) { return isProduct(n); }) &&
        fits(readers, scale)) {
      fold(scale, readers, false);
      std::vector<size_t>& ofValue = uses_.readers[value];
      ofValue.erase(std::find(ofValue.begin(), ofValue.end(), scale));
      ofValue.insert(ofValue.end(), readers.begin(), readers.end());
      return true;
    }
    return false;
  }

  // The product of two factors must be a valid factor.
  bool fits(const std::vector<size_t>& into, size_t scale) const {
    std::vector<float> alpha = alpha_;
    for (size_t n : into) alpha[n] *= graph_.nodes[scale].alpha;
    return std::all_of(into.begin(), into.end(), [&](size_t n) { return std::isnormal(alpha[n]); });
  }

  void fold(size_t scale, const std::vector<size_t>& into, bool intoProducer) {
    for (size_t n : into) alpha_[n] *= graph_.nodes[scale].alpha;
    folded_.push_back({scale, into, intoProducer});
  }

  const FusionGraph& graph_;
  Uses uses_;
  std::vector<float> alpha_;  // by node, including what is folded into it
  std::vector<FoldedScale> folded_;
};

// Pairs of a gmm and a reader with that role; each gmm is in one pair.
std::vector<FusedPair> fuseReaders(const FusionGraph& graph, FusionRole role, bool mayKeepProduct) {
  const Uses uses(graph);
  std::vector<bool> taken(graph.nodes.size());
  std::vector<FusedPair> pairs;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].role != role) continue;
    const size_t tensor = graph.nodes[n].value();
    const std::optional<size_t> gmm = uses.writer[tensor];
    if (!gmm || taken[*gmm]) continue;
    const FusionRole product = graph.nodes[*gmm].role;
    const bool isBiased = product == FusionRole::kBiasedGmm;
    if (product != FusionRole::kGmm && !(isBiased && role == FusionRole::kActivation)) continue;
    const bool keepsProduct = graph.kept[tensor] || uses.readers[tensor].size() > 1;
    if (keepsProduct && !mayKeepProduct) continue;
    taken[*gmm] = true;
    pairs.push_back({*gmm, n, keepsProduct});
  }
  return pairs;
}

}  // namespace

std::vector<FoldedScale> foldScales(const FusionGraph& graph) { return ScaleFolder(graph).run(); }

std::vector<FusedPair> fuseActivations(const FusionGraph& graph) {
  return fuseReaders(graph, FusionRole::kActivation, true);
}

std::vector<FusedPair> fuseActivationGrads(const FusionGraph& graph) {
  return fuseReaders(graph, FusionRole::kActivationGrad, false);
}

std::string parseFusionKinds(std::span<const std::string> words, FusionKinds& kinds) {
  kinds = {};
  if (words.empty() || (words.size() == 1 && words[0] == "all")) return {};
  kinds = {false, false, false};
  if (words.size() == 1 && words[0] == "none") return {};
  for (const std::string& word : words) {
    if (word == "activation") {
      kinds.activation = true;
    } else if (word == "activation-grad") {
      kinds.activationGrad = true;
    } else if (word == "scale") {
      kinds.scale = true;
    } else {
      return word.empty() ? "an empty word" : word;
    }
  }
  return {};
}

}  // namespace sluice
