#include "compiler/analysis/gradients.h"

#include <algorithm>

namespace sluice {

std::vector<bool> tensorsWithGradient(std::span<const GradientNode> nodes, size_t tensors,
                                      std::span<const size_t> trainable, std::span<const size_t> seeds) {
  std::vector<bool> depends(tensors), leads(tensors);
  const auto mark = [](std::vector<bool>& marks, std::span<const size_t> which) {
    for (size_t tensor : which) marks[tensor] = true;
  };
  const auto any = [](const std::vector<bool>& marks, std::span<const size_t> which) {
    return std::any_of(which.begin(), which.end(), [&](size_t tensor) { return marks[tensor]; });
  };
  mark(depends, trainable);
  mark(leads, seeds);
  for (const GradientNode& node : nodes)
    if (any(depends, node.reads)) mark(depends, node.writes);
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node)
    if (any(leads, node->writes)) mark(leads, node->reads);
  for (size_t tensor = 0; tensor < tensors; ++tensor) leads[tensor] = leads[tensor] && depends[tensor];
  return leads;
}

}  // namespace sluice
