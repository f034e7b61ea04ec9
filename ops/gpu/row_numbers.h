// Numbers of rows in global memory, as parts of 16 bytes: bf16 or fp32, from any address of an element on.
// And how the threads of math share the rows of a task.
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/parts.h"
#include "ops/gpu/row_plan.h"

namespace sluice::gpu {

struct Bf16 {
  using Element = uint16_t;
  using Raw = Part;
  static constexpr int kCount = 8;  // in a part
  SLUICE_DEVICE static float valueOf(const Raw& raw, int i) {
    return i % 2 == 0 ? firstBf16(raw.words[i / 2]) : secondBf16(raw.words[i / 2]);
  }
  SLUICE_DEVICE static Raw rawOf(const float (&values)[kCount]) {
    Raw raw;
    SLUICE_UNROLL
    for (int i = 0; i < kCount; i += 2) raw.words[i / 2] = packBf16(values[i], values[i + 1]);
    return raw;
  }
  SLUICE_DEVICE static Element elementOf(const Raw& raw, int i) {
    return static_cast<Element>(raw.words[i / 2] >> (16 * (i % 2)));
  }
  // Where it is still 0.
  SLUICE_DEVICE static void put(Raw* raw, int i, Element element) {
    raw->words[i / 2] |= static_cast<uint32_t>(element) << (16 * (i % 2));
  }
};

struct Fp32 {
  using Element = float;
  static constexpr int kCount = 4;
  struct alignas(16) Raw {
    float values[kCount];
  };
  SLUICE_DEVICE static float valueOf(const Raw& raw, int i) { return raw.values[i]; }
  SLUICE_DEVICE static Raw rawOf(const float (&values)[kCount]) {
    return {{values[0], values[1], values[2], values[3]}};
  }
  SLUICE_DEVICE static Element elementOf(const Raw& raw, int i) { return raw.values[i]; }
  SLUICE_DEVICE static void put(Raw* raw, int i, Element element) { raw->values[i] = element; }
};

template <class Number>
using RawOf = typename Number::Raw;
template <class Number>
using Values = float[Number::kCount];

template <class Number>
SLUICE_DEVICE int partsOf(int columns) {
  return (columns + Number::kCount - 1) / Number::kCount;
}

// Part `part` of a row of `columns` numbers; 0 for what is after them.
template <class Number>
SLUICE_DEVICE RawOf<Number> loadPart(const std::byte* row, int part, int columns) {
  const auto* const from = reinterpret_cast<const typename Number::Element*>(row) + part * Number::kCount;
  const int left = columns - part * Number::kCount;
  if (left >= Number::kCount && isAligned(from, 16))
    return load(reinterpret_cast<const RawOf<Number>*>(from));
  RawOf<Number> raw = {};
  SLUICE_UNROLL
  for (int i = 0; i < Number::kCount; ++i)
    if (i < left) Number::put(&raw, i, load(from + i));
  return raw;
}

template <class Number>
SLUICE_DEVICE void storePart(std::byte* row, int part, int columns, const RawOf<Number>& raw) {
  auto* const to = reinterpret_cast<typename Number::Element*>(row) + part * Number::kCount;
  const int left = columns - part * Number::kCount;
  if (left >= Number::kCount && isAligned(to, 16)) return store(reinterpret_cast<RawOf<Number>*>(to), raw);
  SLUICE_UNROLL
  for (int i = 0; i < Number::kCount; ++i)
    if (i < left) store(to + i, Number::elementOf(raw, i));
}

SLUICE_DEVICE float floatAt(const std::byte* floats, int64_t i) {
  return load(reinterpret_cast<const float*>(floats) + i);
}
// As above, or what counts if there are none.
SLUICE_DEVICE float floatAt(const std::byte* floats, int64_t i, float otherwise) {
  return floats == nullptr ? otherwise : floatAt(floats, i);
}

// Of the warp's values; aligned. In one order, whatever they are.
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

// Of an operand of the task.
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
  RowWalk at(partsOf<Number>(columns), mathThread(), kMathThreads);
  for (; at.row < rows; at.advance()) body(at.row, at.piece, columns);
}

}  // namespace sluice::gpu
