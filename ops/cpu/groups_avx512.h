// The AVX-512 unit of codes in groups (groups.h). Sums are scaled as they leave the registers.
//
// A packed: [rows][kAStride], the codes of the sum in order, then the sums of groups.h. B packed: [k /
// 4][kNr] of four codes, a byte each; in the form that lasts, columns j and 32 + j share bytes. Internal
// linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/groups.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

struct UnitAvx512Groups {
  using Element = int8_t;
  static constexpr int32_t kMr = 6;
  static constexpr int32_t kNr = 64;
  static constexpr int32_t kMc = 384;
  static constexpr int32_t kSumsAt = 256;
  static constexpr int32_t kAStride = kSumsAt + 64;  // room for sums of the row; no power of two
  static constexpr int32_t kKUnit = 4;
  static constexpr bool kShiftsCodes = false;
  static constexpr int32_t kFetchEvery = 32;

  // A panel in the form that lasts is prefetched as it is read, by each group of rows.
  static bool fetchesPanel(int32_t) { return true; }

  static void multiplyGroups(const GroupsPart& part, int32_t rows, bool first, float* tile, Ahead& ahead) {
    using Function = void (*)(const GroupsPart&, bool, float*, Ahead&);
    static constexpr Function kByForm[2][kMr] = {
        {sized<1, false>, sized<2, false>, sized<3, false>, sized<4, false>, sized<5, false>,
         sized<6, false>},
        {sized<1, true>, sized<2, true>, sized<3, true>, sized<4, true>, sized<5, true>, sized<6, true>}};
    kByForm[part.isPacked][rows - 1](part, first, tile, ahead);
  }

 private:
  static constexpr int32_t kVectors = kNr / 16;
  static constexpr int32_t kBlock = 32;
  static constexpr int32_t kBytesAhead = 8 << 10;

  // The bytes of a panel for kKUnit elements of the sum.
  template <bool kPacked>
  static constexpr int32_t kWordBytes = kNr * kKUnit / (kPacked ? 2 : 1);

  // Prefetches bytes of memory that is read once, from its beginning to its end.
  struct Stream {
    const char* at;
    SLUICE_UNROLLED void fetch(int32_t bytes) {
      for (const char* const end = at + bytes; at < end; at += kLineBytes) fetchNear(at);
    }
  };

  SLUICE_UNROLLED static __m512i wordAt(const int8_t* from) {
    int32_t word;
    __builtin_memcpy(&word, from, sizeof word);
    return _mm512_set1_epi32(word);
  }

  // Adds the products of kKUnit elements of the sum.
  template <int kRows, bool kPacked>
  SLUICE_UNROLLED static void addWord(const int8_t* a, const int8_t* b, __m512i (&sums)[kRows][kVectors]) {
    __m512i column[kVectors];
    unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
      if constexpr (!kPacked) {
        column[v.value] = _mm512_loadu_si512(b + v.value * 64);
      } else if constexpr (v.value < kVectors / 2) {
        const __m512i both = _mm512_loadu_si512(b + v.value * 64), lower = _mm512_set1_epi8(15);
        column[v.value] = _mm512_and_si512(both, lower);
        column[v.value + kVectors / 2] = _mm512_and_si512(_mm512_srli_epi16(both, 4), lower);
      }
    });
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      const __m512i row = wordAt(a + i.value * kAStride);
      unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
        sums[i.value][v.value] = _mm512_dpbusd_epi32(sums[i.value][v.value], column[v.value], row);
      });
    });
  }

  // Adds the scaled sums of a stretch to the tile, as groups.h says.
  template <int kRows, bool kHasZeros>
  SLUICE_UNROLLED static void addScaled(const __m512i (&sums)[kRows][kVectors], const int8_t* sumsOfA,
                                        const float* scales, float* tile) {
    unroll<kVectors>([&](auto v) SLUICE_UNROLLED {
      const __m512 scale = _mm512_loadu_ps(scales + v.value * 16);
      unroll<kRows>([&](auto i) SLUICE_UNROLLED {
        const __m512i sum = sums[i.value][v.value], ofA = wordAt(sumsOfA + i.value * kAStride);
        __m512 scaled;
        if constexpr (kHasZeros)
          scaled = _mm512_add_ps(
              _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale),
              _mm512_mul_ps(_mm512_cvtepi32_ps(ofA), _mm512_loadu_ps(scales + kNr + v.value * 16)));
        else
          scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(sum, ofA)), scale);
        float* const to = tile + i.value * kNr + v.value * 16;
        _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), scaled));
      });
    });
  }

  template <int kRows, bool kPacked>
  static void sized(const GroupsPart& part, bool first, float* tile, Ahead& ahead) {
    if (first) __builtin_memset(tile, 0, sizeof(float) * kRows * kNr);
    part.hasZeros ? multiplyStretches<kRows, kPacked, true>(part, tile, ahead)
                  : multiplyStretches<kRows, kPacked, false>(part, tile, ahead);
  }

  template <int kRows, bool kPacked, bool kHasZeros>
  SLUICE_NOT_INLINED static void multiplyStretches(const GroupsPart& part, float* tile, Ahead& ahead) {
    constexpr int32_t kBlockBytes = kBlock / kKUnit * kWordBytes<kPacked>;
    const int8_t *a = part.a, *b = part.b, *sumsOfA = part.a + kSumsAt;
    const float* scales = part.scales;
    Stream soon = {reinterpret_cast<const char*>(b) + kBytesAhead};
    for (int32_t left = part.k; left > 0; left -= part.stretch) {
      __m512i sums[kRows][kVectors] = {};
      for (int32_t length = smaller(part.stretch, left); length > 0; length -= kBlock) {
        if (ahead.hasLines()) ahead.fetch();
        if constexpr (kPacked) soon.fetch(kBlockBytes);
        if (length >= kBlock)
          unroll<kBlock / kKUnit>([&](auto w) SLUICE_UNROLLED {
            addWord<kRows, kPacked>(a + w.value * kKUnit, b + w.value * kWordBytes<kPacked>, sums);
          });
        else
          for (int32_t w = 0; w * kKUnit < length; ++w)
            addWord<kRows, kPacked>(a + w * kKUnit, b + w * kWordBytes<kPacked>, sums);
        a += kBlock;
        b += kBlockBytes;
      }
      addScaled<kRows, kHasZeros>(sums, sumsOfA, scales, tile);
      if constexpr (kPacked) soon.fetch(part.scaleBytes * kNr);
      sumsOfA += sizeof(int32_t);
      scales += (kHasZeros ? 2 : 1) * kNr;
    }
  }
};

}  // namespace
}  // namespace sluice::ops
