// The portable unit: tiles of 6 rows and 8 columns in fp32. Vectors of 4 are the compiler's own type, so that
// they are registers on any machine that has such. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/blocked_product.h"

namespace sluice::ops {
namespace {

struct UnitPortable {
  using Element = float;
  static constexpr int32_t kMr = 6;
  static constexpr int32_t kNr = 8;
  static constexpr int32_t kKc = 256;
  static constexpr int32_t kAStride = kKc;
  static constexpr int32_t kKUnit = 1;

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

  template <int kRows>
  static void sized(const Element* a, const Element* b, int32_t k, bool first, float* tile) {
    Vector sum[kRows][2];
    for (int i = 0; i < kRows; ++i)
      for (int v = 0; v < 2; ++v) sum[i][v] = first ? Vector{} : load(tile + i * kNr + v * 4);
    for (int32_t s = 0; s < k; ++s, ++a, b += kNr) {
      const Vector column[2] = {load(b), load(b + 4)};
      for (int i = 0; i < kRows; ++i) {
        const float x = a[i * kAStride];
        const Vector row = {x, x, x, x};
        for (int v = 0; v < 2; ++v) sum[i][v] += row * column[v];
      }
    }
    for (int i = 0; i < kRows; ++i)
      for (int v = 0; v < 2; ++v) __builtin_memcpy(tile + i * kNr + v * 4, &sum[i][v], sizeof sum[i][v]);
  }
};

}  // namespace
}  // namespace sluice::ops
