// shard: which elements of a tensor that tp ranks share belong to each rank.
//
// A whole tensor is blocks of tp stretches of equal length, and part j is the j-th stretch of every block.
// The terms of a sum (Sharding::kPartial) have the shape of the whole tensor; cut out of one, term j has
// element i where i mod tp = j, and 0 elsewhere.
//
// Pure functions on values. Nothing here shares code with the compiler and the runtime, whose results it
// describes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/enums.h"

namespace sluice::tools {

// Not of kPartial. Elements [block * tp + j] * length .. + length - 1 of the whole tensor belong to part j.
struct Stretches {
  int64_t blocks = 1;
  int64_t length = 0;
};
Stretches findStretches(Sharding sharding, std::span<const int64_t> partShape);

// The dimension that is cut, of a tensor with `rank` dimensions; the others stay as they are.
size_t cutDimension(Sharding sharding, size_t rank);

}  // namespace sluice::tools
