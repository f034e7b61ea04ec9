#include "tools/moe/shard.h"

#include <cassert>

namespace sluice::tools {

size_t cutDimension(Sharding sharding, size_t rank) {
  const size_t fromEnd = sharding == Sharding::kRows || sharding == Sharding::kGateUpRows ? 2 : 1;
  assert(rank >= fromEnd);
  return rank - fromEnd;
}

Stretches findStretches(Sharding sharding, std::span<const int64_t> partShape) {
  assert(sharding != Sharding::kPartial);
  Stretches stretches{1, 1};
  if (sharding == Sharding::kWhole) {
    for (int64_t size : partShape) stretches.length *= size;
    return stretches;
  }
  const size_t cut = cutDimension(sharding, partShape.size());
  for (size_t i = 0; i < partShape.size(); ++i)
    (i < cut ? stretches.blocks : stretches.length) *= partShape[i];
  // gate and up are cut each for itself
  if (sharding == Sharding::kGateUpColumns || sharding == Sharding::kGateUpRows)
    stretches.blocks *= 2, stretches.length /= 2;
  return stretches;
}

}  // namespace sluice::tools
