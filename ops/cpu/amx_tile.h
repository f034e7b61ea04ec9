// The tile unit that the AMX kernels use: eight tiles of 16 rows of 64 bytes, all configured alike.
//
// TileUnit has two forms. The real one is AMX. With SLUICE_AMX_EMULATED it is a software unit that computes
// TDPBF16PS and TDPBSSD as the instruction set reference defines them, so that the kernels are tested on
// machines without AMX. A TileUnit configures the tiles when it is constructed and releases them when it is
// destroyed; a thread has one at a time. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#if defined(SLUICE_AMX_EMULATED)
#define SLUICE_AMX_NAMESPACE amx_emulated
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

  // Of pairs of bf16: sum[m][n] += (sum over k of a[m][2k] * b[k][2n]) + (sum over k of a[m][2k + 1] *
  // b[k][2n + 1]), fused, with denormal inputs and results treated as zero. Of four codes: sum[m][n] += sum
  // over k, h of a[m][4k + h] * b[k][4n + h].
  template <class Element, int kSum, int kA, int kB>
  void multiply() {
    if constexpr (sizeof(Element) == 1) return multiplyCodes<kSum, kA, kB>();
    for (int m = 0; m < kTileRows; ++m)
      for (int n = 0; n < 16; ++n) {
        float half[2] = {0, 0};
        for (int k = 0; k < 16; ++k)
          for (int h = 0; h < 2; ++h) {
            const float a = flush(widen(tiles_[kA][m][k], h));
            const float b = flush(widen(tiles_[kB][k][n], h));
            half[h] = flush(__builtin_fmaf(a, b, half[h]));
          }
        const float before = flush(__builtin_bit_cast(float, tiles_[kSum][m][n]));
        tiles_[kSum][m][n] = __builtin_bit_cast(uint32_t, flush(before + flush(half[0] + half[1])));
      }
  }

 private:
  template <int kSum, int kA, int kB>
  void multiplyCodes() {
    for (int m = 0; m < kTileRows; ++m)
      for (int n = 0; n < 16; ++n)
        for (int k = 0; k < 16; ++k)
          for (int byte = 0; byte < 4; ++byte)
            tiles_[kSum][m][n] +=
                static_cast<uint32_t>(codeOf(tiles_[kA][m][k], byte) * codeOf(tiles_[kB][k][n], byte));
  }
  static int32_t codeOf(uint32_t word, int byte) { return static_cast<int8_t>(word >> 8 * byte); }

  static float widen(uint32_t pair, int half) {
    return __builtin_bit_cast(float, half == 0 ? pair << 16 : pair & 0xffff0000u);
  }
  static float flush(float x) {
    const auto bits = __builtin_bit_cast(uint32_t, x);
    return (bits & 0x7f800000u) == 0 ? __builtin_bit_cast(float, bits & 0x80000000u) : x;
  }

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
