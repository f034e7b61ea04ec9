// The tile unit that the AMX kernels use: eight tiles of 16 rows of 64 bytes, all configured alike.
//
// TileUnit has two forms. The real one is AMX. With SLUICE_AMX_EMULATED it is a software unit that computes
// TDPBF16PS and TDPBSSD as the instruction set reference defines them, so that the kernels are tested on
// machines without AMX. A TileUnit configures the tiles when it is constructed and releases them when it is
// destroyed; a thread has one at a time. Internal linkage: see blocked_product.h.
#pragma once

#if defined(SLUICE_AMX_EMULATED)
#include <immintrin.h>
#endif

#include <cstdint>

#if defined(SLUICE_AMX_EMULATED)
#define SLUICE_AMX_NAMESPACE amx_emulated
#define SLUICE_UNIT_AVX2 __attribute__((target("avx2,fma"), no_sanitize("address", "undefined", "thread")))
#define SLUICE_UNIT_AVX2_INLINE SLUICE_UNIT_AVX2 __attribute__((always_inline)) inline
#else
#define SLUICE_AMX_NAMESPACE amx
#endif

namespace sluice::ops {
namespace {

inline constexpr int kTileRows = 16;
inline constexpr int kTileRowBytes = 64;

#if defined(SLUICE_AMX_EMULATED)

class TileUnit {
 public:
  template <int kTile>
  void zero() {
    __builtin_memset(tiles_[kTile], 0, sizeof tiles_[kTile]);
  }
  template <int kTile>
  void load(const void* from, int64_t stride) {
    for (int i = 0; i < kTileRows; ++i)
      __builtin_memcpy(tiles_[kTile][i], static_cast<const char*>(from) + i * stride, kTileRowBytes);
  }
  template <int kTile>
  void store(void* to, int64_t stride) const {
    for (int i = 0; i < kTileRows; ++i)
      __builtin_memcpy(static_cast<char*>(to) + i * stride, tiles_[kTile][i], kTileRowBytes);
  }

  // For pairs of bf16, sum[m][n] += (sum over k of a[m][2k] * b[k][2n]) + (sum over k of a[m][2k + 1] *
  // b[k][2n + 1]), fused, with denormal inputs and results treated as zero. For four codes, sum[m][n] += sum
  // over k, h of a[m][4k + h] * b[k][4n + h].
  template <class Element, int kSum, int kA, int kB>
  void multiply() {
    const bool hasFma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    constexpr bool kCodes = sizeof(Element) == 1;
    if (hasFma)
      (kCodes ? multiplyCodesAvx2 : multiplyPairsAvx2)(tiles_[kSum], tiles_[kA], tiles_[kB]);
    else
      (kCodes ? multiplyCodes : multiplyPairs)(tiles_[kSum], tiles_[kA], tiles_[kB]);
  }

 private:
  using Tile = uint32_t[kTileRows][16];

  static void multiplyPairs(Tile& sum, const Tile& left, const Tile& right) {
    for (int m = 0; m < kTileRows; ++m)
      for (int n = 0; n < 16; ++n) {
        float half[2] = {0, 0};
        for (int k = 0; k < 16; ++k)
          for (int h = 0; h < 2; ++h) {
            const float a = flush(widen(left[m][k], h));
            const float b = flush(widen(right[k][n], h));
            half[h] = flush(__builtin_fmaf(a, b, half[h]));
          }
        const float before = flush(__builtin_bit_cast(float, sum[m][n]));
        sum[m][n] = __builtin_bit_cast(uint32_t, flush(before + flush(half[0] + half[1])));
      }
  }

  static void multiplyCodes(Tile& sum, const Tile& left, const Tile& right) {
    for (int m = 0; m < kTileRows; ++m)
      for (int n = 0; n < 16; ++n)
        for (int k = 0; k < 16; ++k)
          for (int byte = 0; byte < 4; ++byte)
            sum[m][n] +=
                static_cast<uint32_t>(extractCode(left[m][k], byte) * extractCode(right[k][n], byte));
  }
  static int32_t extractCode(uint32_t word, int byte) { return static_cast<int8_t>(word >> 8 * byte); }

  static float widen(uint32_t pair, int half) {
    return __builtin_bit_cast(float, half == 0 ? pair << 16 : pair & 0xffff0000u);
  }
  static float flush(float x) {
    const auto bits = __builtin_bit_cast(uint32_t, x);
    return (bits & 0x7f800000u) == 0 ? __builtin_bit_cast(float, bits & 0x80000000u) : x;
  }

  // The same by 8 columns. Intrinsics, because tests under sanitizers are compiled with few optimizations,
  // and because a call of fmaf per product took most of their time. Only load() and store() touch matrices,
  // so only these are instrumented.
  static SLUICE_UNIT_AVX2 void multiplyPairsAvx2(Tile& sum, const Tile& left, const Tile& right) {
    for (int m = 0; m < kTileRows; ++m) {
      __m256 even0 = _mm256_setzero_ps(), odd0 = even0, even1 = even0, odd1 = even0;
      for (int k = 0; k < 16; ++k) {
        const __m256i a = _mm256_set1_epi32(static_cast<int32_t>(left[m][k]));
        const __m256i b0 = wordsAt(right[k]), b1 = wordsAt(right[k] + 8);
        const __m256 evenA = evenNumbers(a), oddA = oddNumbers(a);
        even0 = flushed(_mm256_fmadd_ps(evenA, evenNumbers(b0), even0));
        odd0 = flushed(_mm256_fmadd_ps(oddA, oddNumbers(b0), odd0));
        even1 = flushed(_mm256_fmadd_ps(evenA, evenNumbers(b1), even1));
        odd1 = flushed(_mm256_fmadd_ps(oddA, oddNumbers(b1), odd1));
      }
      addTo(sum[m], flushed(_mm256_add_ps(even0, odd0)));
      addTo(sum[m] + 8, flushed(_mm256_add_ps(even1, odd1)));
    }
  }

  static SLUICE_UNIT_AVX2 void multiplyCodesAvx2(Tile& sum, const Tile& left, const Tile& right) {
    for (int m = 0; m < kTileRows; ++m)
      for (int n = 0; n < 16; n += 8) {
        auto* const place = reinterpret_cast<__m256i*>(sum[m] + n);
        __m256i total = _mm256_loadu_si256(place);
        for (int k = 0; k < 16; ++k) {
          const __m256i a = _mm256_set1_epi32(static_cast<int32_t>(left[m][k])), b = wordsAt(right[k] + n);
          total = _mm256_add_epi32(total, _mm256_madd_epi16(evenCodes(a), evenCodes(b)));
          total = _mm256_add_epi32(total, _mm256_madd_epi16(oddCodes(a), oddCodes(b)));
        }
        _mm256_storeu_si256(place, total);
      }
  }

  static SLUICE_UNIT_AVX2_INLINE __m256i wordsAt(const uint32_t* words) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words));
  }
  static SLUICE_UNIT_AVX2_INLINE __m256 evenNumbers(__m256i pairs) {
    return flushed(_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)));
  }
  static SLUICE_UNIT_AVX2_INLINE __m256 oddNumbers(__m256i pairs) {
    return flushed(_mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(~0xffff))));
  }
  static SLUICE_UNIT_AVX2_INLINE void addTo(uint32_t* sum, __m256 x) {
    const __m256 before = flushed(_mm256_castsi256_ps(wordsAt(sum)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sum),
                        _mm256_castps_si256(flushed(_mm256_add_ps(before, x))));
  }
  static SLUICE_UNIT_AVX2_INLINE __m256 flushed(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f800000));
    const __m256i isDenormal = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
    return _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_srli_epi32(isDenormal, 1), bits));
  }
  static SLUICE_UNIT_AVX2_INLINE __m256i evenCodes(__m256i words) {
    return _mm256_srai_epi16(_mm256_slli_epi16(words, 8), 8);
  }
  static SLUICE_UNIT_AVX2_INLINE __m256i oddCodes(__m256i words) { return _mm256_srai_epi16(words, 8); }

  uint32_t tiles_[8][kTileRows][16] = {};
};

#else

class TileUnit {
 public:
  TileUnit() {
    // asm, because g++ 12 declares _tile_loadconfig to read only 8 bytes and drops stores to the rest
    struct alignas(64) Config {
      uint8_t palette = 1;
      uint8_t startRow = 0;
      uint8_t reserved0[14] = {};
      uint16_t rowBytes[8] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint16_t reserved1[8] = {};
      uint8_t rows[8] = {16, 16, 16, 16, 16, 16, 16, 16};
      uint8_t reserved2[8] = {};
    };
    static_assert(sizeof(Config) == 64);
    const Config config;
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~TileUnit() { asm volatile("tilerelease" ::: "memory"); }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;

  template <int kTile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  void store(void* to, int64_t stride) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  // sum += a * b; AT&T order names b first.
  template <class Element, int kSum, int kA, int kB>
  void multiply() {
    if constexpr (sizeof(Element) == 1)
      asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
    else
      asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
  }
};

#endif

}  // namespace
}  // namespace sluice::ops
