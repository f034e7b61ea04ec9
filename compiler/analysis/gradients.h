// Which tensors need a gradient.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace sluice {

// A node in topological order: the numbers of the tensors it reads and writes through which a gradient flows.
struct GradientNode {
  std::vector<size_t> reads;
  std::vector<size_t> writes;
};

// By tensor: true if it depends on a trainable tensor (or is one) and a seed depends on it (or is one). A
// backward pass needs to compute no other gradients. Tensor numbers are less than `tensors`.
std::vector<bool> tensorsWithGradient(std::span<const GradientNode> nodes, size_t tensors,
                                      std::span<const size_t> trainable, std::span<const size_t> seeds);

}  // namespace sluice
