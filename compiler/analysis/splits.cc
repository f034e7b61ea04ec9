#include "compiler/analysis/splits.h"

#include <fmt/format.h>

#include <optional>

namespace sluice {
namespace {

constexpr int32_t kRowUnit = 16;  // bind rounds the length of a slot up to this
constexpr int32_t kMaxSlot = 1 << 20;

struct SpaceView {
  const char* name;
  int32_t SplitNode::* size;
};

Finding conflict(std::span<const SplitNode> nodes, const SpaceView& space, size_t at, size_t other,
                 bool isProducer, size_t origin) {
  Finding finding;
  finding.at = at;
  finding.message = fmt::format("node '{}' cuts '{}' by {}, but {} '{}' cuts it by {}", nodes[at].name,
                                space.name, nodes[at].*space.size, isProducer ? "its producer" : "node",
                                nodes[isProducer ? other : origin].name, nodes[origin].*space.size);
  finding.noteAt = origin;
  finding.note = fmt::format("the split of '{}' is set here", nodes[origin].name);
  return finding;
}

// 1. The first declared size is the program's. 2. Every node takes it from its producers, or declares the
// same. 3. A node that declares another conflicts with the producer it would have taken it from, if any.
std::optional<Finding> agree(std::span<const SplitNode> nodes, const SpaceView& space, int32_t& size) {
  size_t origin = Finding::kNowhere;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int32_t declared = nodes[i].*space.size;
    if (declared == 0) continue;
    if (declared < 0 || declared > kMaxSlot)
      return Finding{i, fmt::format("node '{}' cuts '{}' by {}, expected 1 to {}", nodes[i].name, space.name,
                                    declared, kMaxSlot)};
    if (origin == Finding::kNowhere) {
      origin = i;
      size = declared;
      continue;
    }
    if (declared == size) continue;
    if (!nodes[i].producers.empty())
      return conflict(nodes, space, i, nodes[i].producers.front(), true, origin);
    return conflict(nodes, space, i, origin, false, origin);
  }
  return std::nullopt;
}

}  // namespace

Analyzed<SplitSizes> propagateSplits(std::span<const SplitNode> nodes, SplitSizes fallback) {
  SplitSizes sizes = fallback;
  if (auto finding = agree(nodes, {"rows", &SplitNode::rows}, sizes.rows)) return *finding;
  if (auto finding = agree(nodes, {"tokens", &SplitNode::tokens}, sizes.tokens)) return *finding;
  if (sizes.rows % kRowUnit == 0) return sizes;
  Finding finding;
  finding.message = fmt::format("'rows' is cut by {}, expected a multiple of {}", sizes.rows, kRowUnit);
  for (size_t i = 0; i < nodes.size() && finding.at == Finding::kNowhere; ++i)
    if (nodes[i].rows == sizes.rows) finding.at = i;
  return finding;
}

}  // namespace sluice
