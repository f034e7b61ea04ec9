// Rows of bf16 to codes, and the amax that scaled ones need, in loops that compilers vectorise. Internal
// linkage: see blocked_product.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/bits.h"
#include "ops/cpu/code_scales.h"
#include "ops/cpu/flush_subnormals.h"
#include "ops/cpu/rounding.h"
#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// Codes of whole numbers, by the largest magnitude of a row.

// Number j of a row.
struct PlainRow {
  const BFloat16* a;
  float at(int32_t j) const { return widenBf16(a[j].bits); }
};
struct ScaledRow {
  const BFloat16* a;
  const float* columnScale;
  float at(int32_t j) const { return widenBf16(a[j].bits) * columnScale[j]; }
};

// The bits of the largest magnitude; NaNs are above infinity, and that above all numbers.
template <class Row>
uint32_t largestMagnitude(const Row row, int32_t n) {
  uint32_t most = 0;
  for (int32_t j = 0; j < n; ++j) {
    const uint32_t magnitude = __builtin_bit_cast(uint32_t, row.at(j)) & 0x7fffffff;
    most = magnitude > most ? magnitude : most;
  }
  return most;
}
// Only the upper 16 bits of bf16 are compared, because the others are 0.
inline uint32_t largestMagnitude(const PlainRow row, int32_t n) {
  uint16_t most = 0;
  for (int32_t j = 0; j < n; ++j) {
    const auto magnitude = static_cast<uint16_t>(row.a[j].bits & 0x7fff);
    most = magnitude > most ? magnitude : most;
  }
  return uint32_t{most} << 16;
}

template <class Row>
void quantizeRow(const Row row, int32_t n, float factor, int8_t* __restrict codes) {
  // adding it leaves the nearest whole number, ties to even, in the lowest bits
  constexpr float kRounder = 0x1.8p23F;
  for (int32_t j = 0; j < n; ++j) {
    const float rounded = row.at(j) * factor + kRounder;
    codes[j] = static_cast<int8_t>(__builtin_bit_cast(int32_t, rounded));
  }
}

// Returns the scale.
template <class Row>
float quantizeOne(const Row row, int32_t n, int8_t* codes) {
  constexpr uint32_t kInfinity = 0x7f800000;
  const uint32_t most = largestMagnitude(row, n);
  const float amax = __builtin_bit_cast(float, most);
  if (most < kInfinity && amax >= kLeastQuantised) {
    quantizeRow(row, n, 127 / amax, codes);
    return amax / 127;
  }
  __builtin_memset(codes, 0, static_cast<size_t>(n > 0 ? n : 0));
  return most < kInfinity ? 1 : __builtin_nanf("");
}

inline void quantizeLoop(const QuantizeArgs& args) {
  for (int32_t r = 0; r < args.rows; ++r) {
    const BFloat16* const a = args.a + r * args.lda;
    int8_t* const codes = args.codes + r * args.ldCodes;
    args.scale[r] = args.columnScale == nullptr ? quantizeOne(PlainRow{a}, args.n, codes)
                                                : quantizeOne(ScaledRow{a, args.columnScale}, args.n, codes);
  }
}

// The largest magnitude of a matrix.

inline void amaxLoop(const AmaxArgs& args) {
  constexpr int32_t kBlock = 64;
  int16_t most[kBlock] = {};
  for (int32_t r = 0; r < args.rows; ++r) {
    const BFloat16* const row = args.a + r * args.lda;
    for (int32_t j = 0; j < args.n; j += kBlock) {
      const int32_t count = args.n - j < kBlock ? args.n - j : kBlock;
      for (int32_t i = 0; i < count; ++i) {
        const auto bits = static_cast<int16_t>(row[j + i].bits & 0x7fff);
        const auto finite = static_cast<int16_t>(bits < 0x7f80 ? bits : 0);
        most[i] = most[i] > finite ? most[i] : finite;
      }
    }
  }
  int16_t largest = 0;
  for (const int16_t each : most) largest = each > largest ? each : largest;
  *args.amax = __builtin_bit_cast(float, largest < 0x80 ? 0u : static_cast<uint32_t>(largest) << 16);
}

// Codes of E4M3, by an amax or in blocks down columns or along rows.

constexpr int32_t kE4m3Bias = 7, kE4m3Mantissa = 3, kE4m3Normal = 1 << kE4m3Mantissa;

// What is subtracted from the upper bits of a normal number times 2^e to give its code.
inline uint16_t codeOffset(int32_t e) {
  return static_cast<uint16_t>((kBf16Bias - kE4m3Bias + e) * kE4m3Normal);
}

// The code of a bf16 number whose mantissa has 3 bits, 0 or normal in E4M3.
inline uint8_t encodeNormal(uint16_t bits, uint16_t offset) {
  const auto magnitude = static_cast<uint16_t>(bits & 0x7fff);
  const auto normal = static_cast<uint16_t>((magnitude >> (kBf16Mantissa - kE4m3Mantissa)) - offset);
  return static_cast<uint8_t>((bits >> 8 & 0x80) | (magnitude == 0 ? 0 : normal));
}

// Likewise of any number of E4M3.
inline uint8_t encodeAny(uint16_t bits) {
  constexpr float kLeastNormal = 0x1p-6F, kSteps = 0x1p9F;
  const float x = widenBf16(bits & 0x7fff);
  const auto subnormal = static_cast<uint8_t>((bits >> 8 & 0x80) | static_cast<int32_t>(x * kSteps));
  return x < kLeastNormal ? subnormal : encodeNormal(bits, codeOffset(0));
}

// One block of each of at most kMaxDown columns; `powers` get the bits of their powers.
inline void encodeBlock(const RoundingInfo& info, const BFloat16* __restrict from, int64_t ld, int32_t length,
                        int32_t columns, uint8_t* __restrict codes, int64_t ldCodes,
                        uint16_t (&powers)[kMaxDown]) {
  const NumberRounder rounder(info);
  const ColumnExtremes blocks(from, ld, length, columns);
  uint16_t largest[kMaxDown], offset[kMaxDown];
  int32_t difficult = 0;
  for (int32_t j = 0; j < columns; ++j) {
    const int32_t e = findExponent(blocks.most[j], info);
    largest[j] = largestIn(e, info);
    offset[j] = codeOffset(e);
    powers[j] = static_cast<uint16_t>((kBf16Bias + e) << kBf16Mantissa);
    difficult |= isDifficult(blocks.of(j), e, info);
  }
  if (difficult == 0) {
    for (int32_t i = 0; i < length; ++i, from += ld, codes += ldCodes)
      for (int32_t j = 0; j < columns; ++j)
        codes[j] = encodeNormal(rounder.simple(from[j].bits, largest[j]), offset[j]);
    return;
  }
  float down[kMaxDown];
  for (int32_t j = 0; j < columns; ++j) {
    const bool isFinite = blocks.most[j] < 0x7f80;
    down[j] = isFinite ? findPower(blocks.of(j), findExponent(blocks.most[j], info)).down : 0;
    if (!isFinite) powers[j] = 0x7fc0;
  }
  for (int32_t i = 0; i < length; ++i, from += ld, codes += ldCodes)
    for (int32_t j = 0; j < columns; ++j) {
      const uint8_t code = encodeAny(rounder(from[j].bits, {down[j], 1}));
      codes[j] = down[j] == 0 ? uint8_t{0} : code;
    }
}

// A block of a row.
inline void encodeRun(const RoundingInfo& info, const BFloat16* __restrict from, uint8_t* __restrict codes,
                      BFloat16& power) {
  const NumberRounder rounder(info);
  const Extremes block = findExtremes(from, kMxBlock);
  const int32_t e = findExponent(block.most, info);
  power.bits = static_cast<uint16_t>((kBf16Bias + e) << kBf16Mantissa);
  if (isDifficult(block, e, info) == 0) {
    const uint16_t largest = largestIn(e, info), offset = codeOffset(e);
    for (int32_t j = 0; j < kMxBlock; ++j)
      codes[j] = encodeNormal(rounder.simple(from[j].bits, largest), offset);
    return;
  }
  const bool isFinite = block.most < 0x7f80;
  const float down = findPower(block, e).down;
  if (!isFinite) power.bits = 0x7fc0;
  for (int32_t j = 0; j < kMxBlock; ++j)
    codes[j] = isFinite ? encodeAny(rounder(from[j].bits, {down, 1})) : uint8_t{0};
}

// Numbers of a, which codes stand for if it has some.
struct EncodedRows {
  const EncodeArgs& args;
  bool hasCodes = args.a.type != DType::kBF16;

  const BFloat16* numbers(int32_t row, int32_t column) const {
    return static_cast<const BFloat16*>(args.a.data) + row * args.a.ld + column;
  }
  const uint8_t* codes(int32_t row, int32_t column) const {
    return static_cast<const uint8_t*>(args.a.data) + row * args.a.ld + column;
  }
  // Part of a row; `decoded` has room for it.
  const BFloat16* part(int32_t row, int32_t column, int32_t count, BFloat16* decoded) const {
    if (!hasCodes) return numbers(row, column);
    decodeAlong(codes(row, column), args.powersA.data + row * args.powersA.ld + column / kMxBlock, count,
                decoded);
    return decoded;
  }
  // The columns that come next are far apart.
  void fetch(int32_t row, int32_t length, int32_t column) const {
    const int32_t line = kLineBytes / (hasCodes ? 1 : 2);
    for (int32_t j = column; j < smaller(column + kMaxDown, args.n); j += line)
      for (int32_t i = row; i < row + length; ++i)
        fetchSoon(hasCodes ? static_cast<const void*>(codes(i, j)) : numbers(i, j));
  }
};

inline void encodeAlong(const RoundingInfo& info, const EncodeArgs& args) {
  const EncodedRows a{args};
  BFloat16 decoded[kMxBlock];
  for (int32_t i = 0; i < args.rows; ++i)
    for (int32_t j = 0; j < args.n; j += kMxBlock)
      encodeRun(info, a.part(i, j, kMxBlock, decoded), args.codes + i * args.ldCodes + j,
                args.powers.data[i * args.powers.ld + j / kMxBlock]);
}

// The codes of q(x s); a has no codes.
inline void encodeScaled(const FactorRounding& by, const EncodeArgs& args) {
  const NumberRounder rounder(by.info);
  const EncodedRows a{args};
  for (int32_t i = 0; i < args.rows; ++i) {
    const BFloat16* const __restrict from = a.numbers(i, 0);
    uint8_t* const __restrict codes = args.codes + i * args.ldCodes;
    for (int32_t j = 0; j < args.n; ++j) {
      const uint8_t code = encodeAny(rounder(from[j].bits, {by.scale.down, 1}));
      codes[j] = magnitude(from[j]) < 0x7f80 ? code : kE4m3Nan;
    }
  }
}

inline void encodeLoop(const EncodeArgs& args) {
  const FlushSubnormals meaning;
  const RoundingInfo& info = kRoundings[static_cast<int32_t>(args.round)];
  if (info.isScaled) return encodeScaled(FactorRounding(args.round, args.amax), args);
  if (args.powers.data != nullptr) return encodeAlong(info, args);
  const EncodedRows a{args};
  BFloat16 decoded[kMxBlock * kMaxDown];
  for (int32_t row = 0; row < args.rows; row += kMxBlock) {
    const int32_t length = smaller(kMxBlock, args.rows - row);
    for (int32_t column = 0; column < args.n; column += kMaxDown) {
      const int32_t columns = smaller(kMaxDown, args.n - column);
      uint16_t powers[kMaxDown];
      a.fetch(row, length, column + kMaxDown);
      for (int32_t i = 0; a.hasCodes && i < length; ++i)
        a.part(row + i, column, columns, decoded + i * kMaxDown);
      encodeBlock(info, a.hasCodes ? decoded : a.numbers(row, column), a.hasCodes ? kMaxDown : args.a.ld,
                  length, columns, args.codes + row * args.ldCodes + column, args.ldCodes, powers);
      forScales(args.scales, row, args.rows, column, columns,
                [&powers](int32_t j, BFloat16& scale) { scale.bits = powers[j]; });
    }
  }
}

}  // namespace
}  // namespace sluice::ops
