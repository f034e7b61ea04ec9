// Cuts the part of a rank out of a tensor that tp ranks share, and puts parts together (tools/moe/shard.h).
// Pure functions on values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/enums.h"
#include "tools/io/tensor.h"

namespace sluice {

// The shape of a tensor of which one of `tp` ranks has a part of shape `partShape`.
std::vector<int64_t> wholeShape(Sharding sharding, std::vector<int64_t> partShape, int tp);

// Part `part` of `tp`. The dimension that the sharding cuts must be a multiple of tp (of 2 tp
// where gate and up are cut each for itself); partial tensors must be F32 or BF16.
tools::Tensor cutPart(const tools::Tensor& whole, Sharding sharding, int tp, int part);

// The inverse, from the parts of all ranks of a group in order, of equal type and shape: whole tensors must
// be the same at all ranks, and the first is returned; terms are added in order, as doubles.
tools::Tensor joinParts(std::span<const tools::Tensor* const> parts, Sharding sharding);

}  // namespace sluice
