// RowLayout: where the rows that a rank receives lie in tensors of the caller. It does not depend on PyTorch.
//
// A value. Rows are received without gaps, expert by expert. The caller may ask for experts that begin at
// multiples, and for a fixed number of rows: what lies between is pads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/expected.h"

namespace sluice {

// Rows of a rank in a step, with pads: fewer than 2^31, like rows without pads, so that their bytes fit in 64
// bits.
inline constexpr int64_t kMaxRowsWithPads = (int64_t{1} << 31) - 1;

struct RowLayout {
  struct Expert {
    int64_t first;     // of its rows, in tensors of the caller
    int64_t received;  // rows
    int64_t padded;    // rows and the pads after them
  };
  std::vector<Expert> experts;  // of this rank
  int64_t received = 0;
  int64_t rows = 0;  // of tensors of the caller

  // Whether received rows are not next to each other.
  bool hasGaps() const;
};

// `firstRows` as RowMemory gets it. `fixed` is the number of rows, or -1 for as many as there are; `multiple`
// is 1 or more. Error: there are more than `fixed` or kMaxRowsWithPads.
Expected<RowLayout> makeRowLayout(std::span<const int32_t> firstRows, int64_t fixed, int64_t multiple);

// Copies received rows to their places, and fills pads with zeros. `to` may be `received` if there are no
// gaps.
void spreadRows(const RowLayout& layout, const void* received, void* to, int64_t rowBytes);
// The reverse: pads are not read.
void gatherRows(const RowLayout& layout, const void* from, void* received, int64_t rowBytes);

}  // namespace sluice
