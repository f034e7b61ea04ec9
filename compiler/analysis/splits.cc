#include "compiler/analysis/splits.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace sluice {
namespace {

constexpr int32_t kRowUnit = 16;  // bind rounds the length of a slot up to a multiple of this
constexpr int32_t kMaxSlot = 1 << 20;

struct SpaceView {
  const char* name;
  int32_t SplitNode::* size;
};

// The conflict of node `at` with the size declared by `origin`. The message names its producer if that has
// the same size, else `origin`.
Finding conflict(std::span<const SplitNode> nodes, const SpaceView& space, size_t at, size_t origin,
                 const std::string& why = {}) {
  const auto& producers = nodes[at].producers;
  const int32_t size = nodes[origin].*space.size;
  const auto hasSize = [&](size_t n) { return nodes[n].*space.size == 0 || nodes[n].*space.size == size; };
  const bool isProducer = !producers.empty() && hasSize(producers.front());
  const std::string& other = nodes[isProducer ? producers.front() : origin].name;
  Finding finding;
  finding.at = at;
  finding.message =
      fmt::format("node '{}' cuts '{}' by {}, but {} '{}' cuts it by {}{}", nodes[at].name, space.name,
                  nodes[at].*space.size, isProducer ? "its producer" : "node", other, size, why);
  finding.noteAt = origin;
  finding.note = fmt::format("the split of '{}' is set here", nodes[origin].name);
  return finding;
}

std::optional<Finding> checkRange(std::span<const SplitNode> nodes, const SpaceView& space, size_t at) {
  const int32_t declared = nodes[at].*space.size;
  if (declared > 0 && declared <= kMaxSlot) return std::nullopt;
  return Finding{at, fmt::format("node '{}' cuts '{}' by {}, expected 1 to {}", nodes[at].name, space.name,
                                 declared, kMaxSlot)};
}

// 1. The first declared size is the program's. 2. Every node takes it from its producers, or declares the
// same. 3. A node that declares another conflicts with the producer it would have taken it from, if any.
std::optional<Finding> agreeOnTokens(std::span<const SplitNode> nodes, int32_t& size) {
  const SpaceView space{"tokens", &SplitNode::tokens};
  size_t origin = Finding::kNowhere;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int32_t declared = nodes[i].tokens;
    if (declared == 0) continue;
    if (auto finding = checkRange(nodes, space, i)) return finding;
    if (origin == Finding::kNowhere) {
      origin = i;
      size = declared;
    } else if (declared != size) {
      return conflict(nodes, space, i, origin);
    }
  }
  return std::nullopt;
}

// 1. The first two different sizes that nodes declare are the program's sizes; one must be a multiple of the
// other. 2. Every node declares one of them, or none. 3. Pieces are cut by the smaller one.
std::optional<Finding> agreeOnRows(std::span<const SplitNode> nodes, SplitSizes& sizes) {
  const SpaceView space{"rows", &SplitNode::rows};
  std::vector<size_t> origins;  // of the two sizes
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int32_t declared = nodes[i].rows;
    if (declared == 0) continue;
    if (auto finding = checkRange(nodes, space, i)) return finding;
    const auto isKnown = [&](size_t origin) { return nodes[origin].rows == declared; };
    if (std::any_of(origins.begin(), origins.end(), isKnown)) continue;
    if (origins.size() == 1) {
      const int32_t other = nodes[origins[0]].rows;
      if (std::max(declared, other) % std::min(declared, other) != 0)
        return conflict(nodes, space, i, origins[0]);
    }
    if (origins.size() == 2)
      return Finding{
          i,
          fmt::format("node '{}' cuts 'rows' by {}, but '{}' cuts it by {} and '{}' by {}: expected "
                      "two sizes at most",
                      nodes[i].name, declared, nodes[origins[0]].name, nodes[origins[0]].rows,
                      nodes[origins[1]].name, nodes[origins[1]].rows),
          origins[1], fmt::format("the split of '{}' is set here", nodes[origins[1]].name)};
    origins.push_back(i);
  }
  if (origins.empty()) return std::nullopt;
  const auto [least, most] = std::minmax_element(
      origins.begin(), origins.end(), [&](size_t a, size_t b) { return nodes[a].rows < nodes[b].rows; });
  sizes.rows = nodes[*least].rows;
  sizes.groups = origins.size() > 1 ? nodes[*most].rows : 0;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].pieces && nodes[i].rows > sizes.rows)
      return conflict(nodes, space, i, *least, ", and pieces are cut by the smaller size");
  return std::nullopt;
}

}  // namespace

SplitSizes withinLimits(const SplitSizes& sizes, int64_t ranks, int64_t maxTokens) {
  const int64_t rows = (ranks * maxTokens + kRowUnit - 1) / kRowUnit * kRowUnit;
  return {static_cast<int32_t>(std::min<int64_t>(sizes.rows, rows)),
          static_cast<int32_t>(std::min<int64_t>(sizes.tokens, maxTokens)), sizes.groups};
}

Analyzed<SplitSizes> propagateSplits(std::span<const SplitNode> nodes, SplitSizes fallback) {
  SplitSizes sizes = fallback;
  if (auto finding = agreeOnRows(nodes, sizes)) return *finding;
  if (auto finding = agreeOnTokens(nodes, sizes.tokens)) return *finding;
  if (sizes.rows % kRowUnit == 0) return sizes;
  const auto cut = std::ranges::find(nodes, sizes.rows, &SplitNode::rows);
  const bool isNode = cut != nodes.end();  // else the options give the size
  Finding finding;
  const std::string what = isNode ? fmt::format("node '{}' cuts 'rows'", cut->name) : "'rows' is cut";
  finding.message = fmt::format("{} by {}, expected a multiple of {}", what, sizes.rows, kRowUnit);
  if (isNode) finding.at = static_cast<size_t>(cut - nodes.begin());
  return finding;
}

std::vector<int32_t> rowsOfNodes(std::span<const SplitNode> nodes, const SplitSizes& sizes) {
  std::vector<int32_t> rows;
  for (const SplitNode& node : nodes) {
    int32_t own = node.rows;
    if (own == 0 && !node.pieces)
      for (size_t producer : node.producers) own = own == 0 ? rows[producer] : std::min(own, rows[producer]);
    rows.push_back(own == 0 ? sizes.rows : own);
  }
  return rows;
}

}  // namespace sluice
