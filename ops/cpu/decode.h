// Codes to bf16 numbers: code times scale, plus the zero of its block if there are zeros, rounded once at the
// end. Codes are whole numbers (int8_t, Nibbles), E4M3 (uint8_t), or E2M1 whose scales are codes (Nibbles).
// Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/blocked_product.h"
#if defined(__AVX512BF16__)
#include "ops/cpu/decode_avx512.h"
#endif
#include "ops/cpu/lookup.h"
#include "ops/cpu/nibbles.h"
#include "ops/cpu/scales.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// The place of an element in its matrix as that lies.
struct Place {
  int32_t row, column;
};

inline float numberOf(int8_t code) { return static_cast<float>(code); }

template <class Code>
void decodeRun(const Code* __restrict codes, int32_t count, float scale, BFloat16* __restrict to) {
  for (int32_t j = 0; j < count; ++j) to[j].bits = roundToBf16(numberOf(codes[j]) * scale);
}

// `zeros` may be null.
template <class Code>
void decodeEach(const Code* __restrict codes, int32_t count, const float* __restrict scales,
                const float* __restrict zeros, BFloat16* __restrict to) {
  if (zeros == nullptr)
    for (int32_t j = 0; j < count; ++j) to[j].bits = roundToBf16(numberOf(codes[j]) * scales[j]);
  else
    for (int32_t j = 0; j < count; ++j) to[j].bits = roundToBf16(numberOf(codes[j]) * scales[j] + zeros[j]);
}

constexpr int32_t kMaxDecoded = 64;

// Numbers of a row of which each has its own scale, from `at` on.
template <class Code>
void decodeOwn(const Code* codes, int32_t count, const BlockScales& scales, int64_t at, BFloat16* to) {
  decodeEach(codes, count, static_cast<const float*>(scales.data) + at, nullptr, to);
}
inline void decodeOwn(const Nibbles* codes, int32_t count, const BlockScales& scales, int64_t at,
                      BFloat16* to) {
  if (areCodes(scales))
    return decodeFloats(codes, count, scales.type, static_cast<const uint8_t*>(scales.data) + at, to);
  int8_t expanded[kMaxDecoded];
  float widened[kMaxDecoded], added[kMaxDecoded];
  const float* const by = scalesFrom(scales, at, count, widened);
  const float* const zeros = scales.zero == nullptr ? nullptr : zerosFrom(scales, at, count, by, added);
  expand(codes, count, zeros == nullptr ? kHalf : 0, expanded);
  decodeEach(expanded, count, by, zeros, to);
}

// Numbers `first` + j of a row, which share the scale `at`.
template <class Code>
void decodeShared(const Code* codes, int32_t first, int32_t count, const BlockScales& scales, int64_t at,
                  BFloat16* to) {
  decodeRun(codes + first, count, static_cast<const float*>(scales.data)[at], to);
}
inline void decodeShared(const Nibbles* codes, int32_t first, int32_t count, const BlockScales& scales,
                         int64_t at, BFloat16* to) {
  if (areCodes(scales))
    return decodeSharedFloats(codes, first, count, scales.type, static_cast<const uint8_t*>(scales.data)[at],
                              to);
  const auto look = [&](const NumbersOfCodes& numbers) { numbers.lookUp(codes, first, count, to); };
  const float by = scaleAt(scales, at);
  if (scales.zero != nullptr)
    look(NumbersOfCodes::ofWhole(0, by, zeroAt(scales, at, by)));
  else
    look(NumbersOfCodes::ofWhole(-kHalf, by, 0));
}

// to[i, j] = the number at `first` + (i, j) of the operand, whose codes from there on are `codes`; at most
// kMaxDecoded columns.
template <class B>
void decode(const B* codes, int64_t ld, const BlockScales& scales, Place first, int32_t rows, int32_t columns,
            BFloat16* to, int64_t ldTo) {
  first.row += scales.firstRow;
  first.column += scales.firstColumn;
#if defined(__AVX512BF16__)
  if (decodeWide(codes, ld, scales, first.row, first.column, rows, columns, to, ldTo)) return;
#endif
  // divisions take as long as some twenty numbers: none for each row
  const int32_t firstBlock = first.column / scales.columns;
  int32_t blockRow = first.row / scales.rows, rowsLeft = (blockRow + 1) * scales.rows - first.row;
  for (int32_t i = 0; i < rows; ++i, to += ldTo, --rowsLeft) {
    if (rowsLeft == 0) ++blockRow, rowsLeft = scales.rows;
    const B* const row = numberAt(codes, i * ld);
    const int64_t line = blockRow * scales.ld;
    if (scales.columns == 1) {
      decodeOwn(row, columns, scales, line + first.column, to);
      continue;
    }
    int32_t end = (firstBlock + 1) * scales.columns - first.column;
    for (int32_t j = 0, block = firstBlock; j < columns; j = end, end += scales.columns, ++block)
      decodeShared(row, j, smaller(end, columns) - j, scales, line + block, to + j);
  }
}

// Packs codes by a packer of bf16: codes become 16-bit elements a few of the sum at a time, and then lie as b
// would. They are the panel of b [k, cols] whose codes begin at `codes`; if `transposed`, they are [cols, k].
// For each part of them convert(codes, first, rows, columns, to, ldTo) writes the elements: `first` is the
// part's first element of the sum, and rows and columns are counted as in memory.
template <class Unit, class Pack, class B, class Convert>
void packParts(bool transposed, const B* codes, int64_t ld, int32_t cols, int32_t k, PanelElement<Unit>* dst,
               const B* ahead, const Convert& convert) {
  constexpr int32_t kPart = 32, kLine = kLineBytes / sizeof(B) * kPerElement<B>;
  static_assert(kPart % Unit::kKUnit == 0);
  BFloat16 elements[kPart * Unit::kNr];
  for (int32_t r = 0; r < k; r += kPart, dst += kPart * Unit::kNr) {
    const int32_t length = smaller(kPart, k - r);
    const int64_t offset = transposed ? r : r * ld;
    const int32_t rows = transposed ? cols : length, columns = transposed ? length : cols;
    if (ahead != nullptr)
      for (int32_t i = 0; i < rows; ++i)
        for (int32_t j = 0; j < columns; j += kLine) fetchSoon(numberAt(ahead, offset + i * ld + j));
    if (transposed) {
      convert(numberAt(codes, offset), r, cols, length, elements, kPart);
      Pack::panelOfColumns(elements, kPart, cols, length, dst, static_cast<const BFloat16*>(nullptr));
    } else {
      convert(numberAt(codes, offset), r, length, cols, elements, Unit::kNr);
      Pack::panelOfRows(elements, Unit::kNr, cols, length, dst, static_cast<const BFloat16*>(nullptr));
    }
  }
}

}  // namespace
}  // namespace sluice::ops
