// shard: cuts the part of a rank out of a tensor that tp ranks share, and puts parts together.
//
// A whole tensor is blocks of tp stretches of equal length, and part j is the j-th stretch of every block.
// The terms of a sum (Sharding::kPartial) have the shape of the whole tensor; cut out of one, term j has
// element i where i mod tp = j, and 0 elsewhere.
//
// Pure functions on values. Nothing here shares code with the compiler and the runtime, whose results it
// cuts and joins.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/enums.h"
#include "tools/io/tensor.h"

namespace sluice::tools {

// Not of kPartial. Elements [block * tp + j] * length .. + length - 1 of the whole tensor belong to part j.
struct Stretches {
  int64_t blocks = 1;
  int64_t length = 0;
};
Stretches stretchesOf(Sharding sharding, std::span<const int64_t> partShape);

// The shape of a tensor of which one of `tp` ranks has a part of shape `partShape`.
std::vector<int64_t> wholeShape(Sharding sharding, std::vector<int64_t> partShape, int tp);

// Part `part` of `tp`. The dimension that the sharding cuts must be a multiple of tp (of 2 tp
// where gate and up are cut each for itself); partial tensors must be F32 or BF16.
Tensor cutPart(const Tensor& whole, Sharding sharding, int tp, int part);

// The inverse, from the parts of all ranks of a group in order, of equal type and shape: whole tensors must
// be the same at all ranks, and the first is returned; terms are added in order, as doubles.
Tensor joinParts(std::span<const Tensor* const> parts, Sharding sharding);

}  // namespace sluice::tools
