// The AVX2 units of codes in groups (groups.h). Sums are scaled as they leave the registers.
//
// BlockSums adds up the products of a block for 8 columns. Its members: begin(sum, column, row) makes sum the
// products of the bytes of column, which are unsigned, with the bytes of row, which are signed; add(sum,
// column, row) adds these products; words(sum) returns the sums in 32 bits.
//
// A packed: [rows][kAStride], the codes of the sum in order, then the sums of groups.h. B packed: [k /
// 4][kNr] of four codes, a byte each; in the form that lasts, columns j and 8 + j share bytes. Internal
// linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/groups.h"
#include "ops/cpu/panels_avx2.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

// vpmaddubsw adds pairs of products as 16 bits.
struct GroupSumsAvx2 {
  SLUICE_UNROLLED static void begin(__m256i& sum, __m256i column, __m256i row) {
    sum = _mm256_maddubs_epi16(column, row);
  }
  SLUICE_UNROLLED static void add(__m256i& sum, __m256i column, __m256i row) {
    add16(sum, _mm256_maddubs_epi16(column, row));
  }
  SLUICE_UNROLLED static __m256i words(__m256i sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
};

template <class BlockSums>
struct GroupsAvx2 {
  using Element = int8_t;
  static constexpr int32_t kMr = 6;
  static constexpr int32_t kNr = 16;
  static constexpr int32_t kMc = 192;
  static constexpr int32_t kKPart = 1024;
  static constexpr int32_t kSumsAt = kKPart;
  static constexpr int32_t kAStride = kKPart + kKPart / 8;  // a sum of 4 bytes per 32 codes
  static constexpr int32_t kKUnit = 4;
  static constexpr bool kShiftsCodes = false;
  static constexpr int32_t kFetchEvery = 32;

  // So few rows read panels in the order of memory (sumOfBlock).
  static bool fetchesPanel(int32_t rows) { return rows <= 2 * kMr; }

  template <class AnyAhead>
  static void multiplyGroups(const GroupsPart& part, int32_t rows, bool first, float* tile, AnyAhead& ahead) {
    using Function = void (*)(const GroupsPart&, bool, float*, AnyAhead&);
    static constexpr Function kByForm[2][kMr] = {
        {sized<1, false, AnyAhead>, sized<2, false, AnyAhead>, sized<3, false, AnyAhead>,
         sized<4, false, AnyAhead>, sized<5, false, AnyAhead>, sized<6, false, AnyAhead>},
        {sized<1, true, AnyAhead>, sized<2, true, AnyAhead>, sized<3, true, AnyAhead>,
         sized<4, true, AnyAhead>, sized<5, true, AnyAhead>, sized<6, true, AnyAhead>}};
    kByForm[part.isPacked][rows - 1](part, first, tile, ahead);
  }

 private:
  // The elements that sums of 16 bits hold: 8 pairs of products of at most 15 * 128.
  static constexpr int32_t kBlock = 32;
  static constexpr int32_t kSteps = kBlock / kKUnit;

  template <bool kPacked>
  static constexpr int32_t kStepBytes = kPacked ? 32 : 64;

  SLUICE_UNROLLED static __m256i bytesAt(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  SLUICE_UNROLLED static __m256i wordAt(const int8_t* from) {
    int32_t word;
    __builtin_memcpy(&word, from, sizeof word);
    return _mm256_set1_epi32(word);
  }

  // Four elements of the sum; the first ones of a block begin the sums.
  template <int kRows, bool kPacked, bool kFirst>
  SLUICE_UNROLLED static void step(const int8_t* a, const int8_t* b, __m256i (&sum)[kRows][2]) {
    __m256i column[2] = {bytesAt(b)};
    if constexpr (kPacked) {
      const __m256i lower = _mm256_set1_epi8(15);
      column[1] = _mm256_and_si256(_mm256_srli_epi16(column[0], 4), lower);
      column[0] = _mm256_and_si256(column[0], lower);
    } else {
      column[1] = bytesAt(b + 32);
    }
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      const __m256i row = wordAt(a + i.value * kAStride);
      unroll<2>([&](auto v) SLUICE_UNROLLED {
        if constexpr (kFirst)
          BlockSums::begin(sum[i.value][v.value], column[v.value], row);
        else
          BlockSums::add(sum[i.value][v.value], column[v.value], row);
      });
    });
  }

  // sum = a * b over a whole block.
  template <int kRows, bool kPacked>
  SLUICE_UNROLLED static void multiplyWhole(const int8_t* a, const int8_t* b, __m256i (&sum)[kRows][2]) {
    step<kRows, kPacked, true>(a, b, sum);
    unroll<kSteps - 1>([&](auto s) SLUICE_UNROLLED {
      constexpr int32_t kStep = decltype(s)::value + 1;
      step<kRows, kPacked, false>(a + kStep * kKUnit, b + kStep * kStepBytes<kPacked>, sum);
    });
  }
  template <int kRows, bool kPacked>
  SLUICE_UNROLLED static void multiplyPart(const int8_t* a, const int8_t* b, int32_t length,
                                           __m256i (&sum)[kRows][2]) {
    step<kRows, kPacked, true>(a, b, sum);
    for (int32_t s = 1; s * kKUnit < length; ++s)
      step<kRows, kPacked, false>(a + s * kKUnit, b + s * kStepBytes<kPacked>, sum);
  }

  // Adds the sums of a stretch to 8 columns of a tile, as groups.h says.
  template <bool kHasZeros>
  SLUICE_UNROLLED static void addScaled(__m256i sum, __m256i sumOfA, const float* scales, float* to) {
    __m256 scaled;
    if constexpr (kHasZeros)
      scaled = _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_loadu_ps(scales)),
                             _mm256_mul_ps(_mm256_cvtepi32_ps(sumOfA), _mm256_loadu_ps(scales + kNr)));
    else
      scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(sum, sumOfA)), _mm256_loadu_ps(scales));
    _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), scaled));
  }

  // sumAt(i, v): the sums of row i and of 8 columns from 8 v on.
  template <int kRows, bool kHasZeros, class SumAt>
  SLUICE_UNROLLED static void addStretch(const SumAt& sumAt, const int8_t* sumsOfA, const float* scales,
                                         float* tile) {
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      const __m256i ofA = wordAt(sumsOfA + i.value * kAStride);
      unroll<2>([&](auto v) SLUICE_UNROLLED {
        addScaled<kHasZeros>(sumAt(i, v), ofA, scales + v.value * 8, tile + i.value * kNr + v.value * 8);
      });
    });
  }

  template <int kRows, bool kPacked, class AnyAhead>
  static void sized(const GroupsPart& part, bool first, float* tile, AnyAhead& ahead) {
    if (first) __builtin_memset(tile, 0, sizeof(float) * kRows * kNr);
    if (part.stretch != kBlock || part.k % kBlock != 0) return byStretches<kRows, kPacked>(part, tile, ahead);
    part.hasZeros ? byBlocks<kRows, kPacked, true>(part, tile, ahead)
                  : byBlocks<kRows, kPacked, false>(part, tile, ahead);
  }

  // Stretches are blocks.
  template <int kRows, bool kPacked, bool kHasZeros, class AnyAhead>
  SLUICE_NOT_INLINED static void byBlocks(const GroupsPart& part, float* tile, AnyAhead& ahead) {
    const int8_t *a = part.a, *b = part.b, *sumsOfA = part.a + kSumsAt;
    const float* scales = part.scales;
    for (const int8_t* const end = a + part.k; a != end; a += kBlock, b += kSteps * kStepBytes<kPacked>) {
      if (ahead.hasLines()) ahead.fetch();
      if constexpr (__is_same(AnyAhead, AheadInPanel)) {
        fetchInPanel<kSteps * kStepBytes<kPacked>>(b);
        fetchInPanel<(kHasZeros ? 2 : 1) * kNr * 4>(scales);
      }
      __m256i sum[kRows][2];
      multiplyWhole<kRows, kPacked>(a, b, sum);
      addStretch<kRows, kHasZeros>([&](auto i, auto v)
                                       SLUICE_UNROLLED { return BlockSums::words(sum[i.value][v.value]); },
                                   sumsOfA, scales, tile);
      scales += (kHasZeros ? 2 : 1) * kNr;
      sumsOfA += sizeof(int32_t);
    }
  }

  template <int kRows, bool kPacked, class AnyAhead>
  SLUICE_NOT_INLINED static void byStretches(const GroupsPart& part, float* tile, AnyAhead& ahead) {
    const int8_t *a = part.a, *b = part.b, *sumsOfA = part.a + kSumsAt;
    const float* scales = part.scales;
    for (int32_t left = part.k; left > 0; left -= part.stretch) {
      const int32_t length = smaller(part.stretch, left);
      __m256i totals[kRows][2] = {};
      for (int32_t at = 0; at < length; at += kBlock, a += kBlock, b += kSteps * kStepBytes<kPacked>) {
        if (ahead.hasLines()) ahead.fetch();
        if constexpr (__is_same(AnyAhead, AheadInPanel)) fetchInPanel<kSteps * kStepBytes<kPacked>>(b);
        __m256i sum[kRows][2];
        if (length - at >= kBlock)
          multiplyWhole<kRows, kPacked>(a, b, sum);
        else
          multiplyPart<kRows, kPacked>(a, b, length - at, sum);
        unroll<kRows>([&](auto i) SLUICE_UNROLLED {
          unroll<2>([&](auto v) SLUICE_UNROLLED {
            add32(totals[i.value][v.value], BlockSums::words(sum[i.value][v.value]));
          });
        });
      }
      const auto totalAt = [&](auto i, auto v) SLUICE_UNROLLED { return totals[i.value][v.value]; };
      part.hasZeros ? addStretch<kRows, true>(totalAt, sumsOfA, scales, tile)
                    : addStretch<kRows, false>(totalAt, sumsOfA, scales, tile);
      scales += part.hasZeros ? 2 * kNr : kNr;
      sumsOfA += sizeof(int32_t);
    }
  }
};

using UnitAvx2Groups = GroupsAvx2<GroupSumsAvx2>;

}  // namespace
}  // namespace sluice::ops
