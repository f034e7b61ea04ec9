// What a kernel is given to do with rows, besides products (copy_rows.h, row_work.h). Values, made by the
// host.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::gpu {

// Row i of `to` becomes row index[i] / divisor of `from`, or row i of it without an index. `to` may be the
// memory of another rank.
struct RowCopy {
  const std::byte* from;
  int64_t fromPitch;  // bytes
  const int32_t* index;
  int32_t divisor;
  std::byte* to;
  int64_t toPitch;
  int32_t bytes;  // of a row; any number, at any address
  int32_t rows;
};

}  // namespace sluice::gpu
