// The table of activations: the facts of each, for kernels, verification, compilation and reports. Their
// formulas: runtime/abi/activation.h.
//
// Constant table and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "runtime/base/enums.h"

namespace sluice {

struct ActivationInfo {
  int32_t inputs;  // ranges of equally many columns that it reads: 2 for gate and up, 1 for x alone
  bool hasLimit;
  int32_t flops;      // per element of the result
  int32_t gradFlops;  // likewise of the gradient
  constexpr bool isGated() const { return inputs == 2; }
};

// By ActivationKind: inputs, limit, operations. In each file its own, because kernel files must share no
// symbols.
constexpr ActivationInfo kActivations[] = {
    {2, false, 5, 12}, {2, true, 8, 15},  {2, false, 10, 21}, {2, false, 2, 4},
    {2, false, 3, 6},  {2, true, 10, 17}, {1, false, 4, 8},   {1, false, 2, 3},
};
static_assert(std::size(kActivations) == static_cast<size_t>(ActivationKind::MAX) + 1);

constexpr const ActivationInfo& findInfo(ActivationKind kind) {
  return kActivations[static_cast<size_t>(kind)];
}

// The sharding of the columns, or rows, that an activation reads if it gives the columns, or rows, of a
// shard: the same part of each input.
constexpr Sharding findShardedColumns(ActivationKind kind) {
  return findInfo(kind).isGated() ? Sharding::kGateUpColumns : Sharding::kColumns;
}
constexpr Sharding findShardedRows(ActivationKind kind) {
  return findInfo(kind).isGated() ? Sharding::kGateUpRows : Sharding::kRows;
}

}  // namespace sluice
