// What a kernel is given to do with rows, besides products (copy_rows.h, row_work.h). Values, made by the
// host. Pitches are in bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/enums.h"

namespace sluice::gpu {

// Row i of `to` becomes row index[i] / divisor of `from`, zeros where the index is below 0, or row i of
// `from` without an index. `to` may be the memory of another rank.
struct RowCopy {
  const std::byte* from;
  int64_t fromPitch;
  const int32_t* index;
  int32_t divisor;
  std::byte* to;
  int64_t toPitch;
  int32_t bytes;  // of a row; any number, at any address
  int32_t rows;
};

// The ops of runtime/abi/kernels.h with the same rounding; `in` and `out` of each in the order given here.
enum class RowOp : uint8_t {
  kWeightedSum = 0,  // rows (from row 0 on), weights or null, bias or null -> rows
  kScalarSum = 1,    // floats (from the first on) -> floats [rows, topK]
  kAdd = 2,          // rows, rows -> rows
  kScale = 3,        // rows, weights of rows or null -> rows
  kColumnSum = 4,    // rows, scales or null -> one row
  kRowDot = 5,       // rows, a vector, addends or null -> floats
  kActivation = 6,   // gate_up -> act
  // gradient of act, gate_up, weights of rows or null -> gradient of gate_up, gradient of the weights or
  // null, act times the weights or null
  kActivationGrad = 7,
};

// Rows are bf16, or fp32 with `isFp32` (kWeightedSum, kScale, and of kColumnSum the result). They lie at
// multiples of an element, and so do pitches. Floats of rows or pairs lie one after the other. Pointers are
// to the task's first row. Rows of kAdd, kScale and kActivationGrad may replace operands with the same rows.
struct RowWork {
  RowOp op;
  ActivationKind activation;
  bool isFp32;
  bool accumulates;  // kColumnSum
  const std::byte* in[3];
  int64_t inPitch[3];
  std::byte* out[3];
  int64_t outPitch[3];
  const int32_t* position;  // [rows, topK], of the sums of a combine; -1: none
  int32_t rows;
  int32_t columns;  // with an activation the columns of act
  int32_t topK, parts;
  int64_t partRows;  // of kScalarSum: floats
  float alpha, limit;
};

}  // namespace sluice::gpu
