// The portable unit: tiles of 6 rows and 8 columns in fp32. Vectors of 4 are the compiler's own type, so that
// they are registers on any machine that has such. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

struct UnitPortable {
  using Element = float;
  static constexpr int32_t kMr = 6;
  static constexpr int32_t kNr = 8;
  static constexpr int32_t kMc = 384;
  static constexpr int32_t kKc = 256;
  static constexpr int32_t kAStride = kKc;
  static constexpr int32_t kKUnit = 1;
  static constexpr int32_t kFewKc = 64;
  static constexpr int32_t kRowsKc = 0;  // reads packed panels only

  static void multiply(const Element* a, const Element* b, int32_t k, int32_t rows, int32_t cols, bool first,
                       float* tile) {
    (void)cols;  // the pad of the panel is zeros: eight columns cost as much as five
    using Function = void (*)(const Element*, const Element*, int32_t, bool, float*);
    static constexpr Function kBySize[6] = {sized<1>, sized<2>, sized<3>, sized<4>, sized<5>, sized<6>};
    kBySize[rows - 1](a, b, k, first, tile);
  }

 private:
  typedef float Vector __attribute__((vector_size(16)));

  static Vector load(const float* from) {
    Vector v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
  }
  static void store(float* to, Vector v) { __builtin_memcpy(to, &v, sizeof v); }

  template <int kRows>
  static void sized(const Element* a, const Element* b, int32_t k, bool first, float* tile) {
    // Loading zeros stored just now is cheaper than what g++ makes of two ways to begin.
    if (first) __builtin_memset(tile, 0, sizeof(float) * kRows * kNr);
    Vector sum[kRows][2];
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<2>([&](auto v)
                    SLUICE_UNROLLED { sum[i.value][v.value] = load(tile + i.value * kNr + v.value * 4); });
    });
    for (int32_t s = 0; s < k; ++s, ++a, b += kNr) {
      const Vector column[2] = {load(b), load(b + 4)};
      unroll<kRows>([&](auto i) SLUICE_UNROLLED {
        const float x = a[i.value * kAStride];
        const Vector row = {x, x, x, x};
        sum[i.value][0] += row * column[0];
        sum[i.value][1] += row * column[1];
      });
    }
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<2>([&](auto v)
                    SLUICE_UNROLLED { store(tile + i.value * kNr + v.value * 4, sum[i.value][v.value]); });
    });
  }
};

}  // namespace
}  // namespace sluice::ops
