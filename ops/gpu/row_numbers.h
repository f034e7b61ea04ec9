// Numbers of rows in global memory, as parts of 16 bytes: bf16 or fp32, from any address of an element on.
// And how the threads of math share the rows of a task.
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/part.h"
#include "ops/gpu/row_walk.h"
#include "runtime/abi/gpu/row_plan.h"

namespace sluice::gpu {

struct Bf16 {
  using Element = uint16_t;
  static constexpr int kCount = 8;  // in a part
  SLUICE_DEVICE static float unpackValue(const Part& part, int i) {
    return i % 2 == 0 ? firstBf16(part.words[i / 2]) : secondBf16(part.words[i / 2]);
  }
  SLUICE_DEVICE static Part packPart(const float (&values)[kCount]) {
    Part part;
    SLUICE_UNROLL
    for (int i = 0; i < kCount; i += 2) part.words[i / 2] = packBf16(values[i], values[i + 1]);
    return part;
  }
};

struct Fp32 {
  using Element = float;
  static constexpr int kCount = 4;
  SLUICE_DEVICE static float unpackValue(const Part& part, int i) {
    return __builtin_bit_cast(float, part.words[i]);
  }
  SLUICE_DEVICE static Part packPart(const float (&values)[kCount]) {
    Part part;
    SLUICE_UNROLL
    for (int i = 0; i < kCount; ++i) part.words[i] = __builtin_bit_cast(uint32_t, values[i]);
    return part;
  }
};

template <class Number>
using Values = float[Number::kCount];

template <class Number>
SLUICE_DEVICE int countParts(int columns) {
  return (columns + Number::kCount - 1) / Number::kCount;
}

// Part `part` of a row of `columns` numbers; 0 for what is after them.
template <class Number>
SLUICE_DEVICE Part loadPart(const std::byte* row, int part, int columns) {
  return loadPart<sizeof(typename Number::Element)>(row + part * sizeof(Part),
                                                    columns - part * Number::kCount);
}

template <class Number>
SLUICE_DEVICE void storePart(std::byte* row, int part, int columns, const Part& numbers) {
  storePart<sizeof(typename Number::Element)>(row + part * sizeof(Part), numbers,
                                              columns - part * Number::kCount);
}

SLUICE_DEVICE float floatAt(const std::byte* floats, int64_t i) {
  return load(reinterpret_cast<const float*>(floats) + i);
}
// As above, or what counts if there are none.
SLUICE_DEVICE float floatAt(const std::byte* floats, int64_t i, float otherwise) {
  return floats == nullptr ? otherwise : floatAt(floats, i);
}

// Adds the values of the warp in one order, whatever they are. It is `aligned` (hw.h).
SLUICE_DEVICE float sumOfWarp(float value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    const uint32_t other = shuffle(__builtin_bit_cast(uint32_t, value), laneIndex() ^ distance);
    value += __builtin_bit_cast(float, other);
  }
  return value;
}

// ---- The rows of a task.

inline constexpr int kMathThreads = 256;
inline constexpr int kMathWarps = kMathThreads / 32;
SLUICE_DEVICE int mathThread() { return threadIndex() - 128; }
SLUICE_DEVICE int mathWarp() { return warpIndex() - 4; }

// These return where a row of an operand or of a result of the task begins.
SLUICE_DEVICE const std::byte* inRow(const RowWork* work, int operand, int64_t row) {
  return load(&work->in[operand]) + row * load(&work->inPitch[operand]);
}
SLUICE_DEVICE std::byte* outRow(const RowWork* work, int operand, int64_t row) {
  return load(&work->out[operand]) + row * load(&work->outPitch[operand]);
}

// Calls body(row, part, columns) for all parts of all rows of the task, each in one thread.
template <class Number, class Body>
SLUICE_DEVICE void forParts(const RowWork* work, const Body& body) {
  const int rows = load(&work->rows), columns = load(&work->columns);
  if (columns <= 0) return;
  RowWalk at(countParts<Number>(columns), mathThread(), kMathThreads);
  for (; at.row < rows; at.advance()) body(at.row, at.piece, columns);
}

}  // namespace sluice::gpu
