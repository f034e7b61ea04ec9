// The portable unit: tiles of 6 rows and 8 columns in fp32. Vectors of 4 are the compiler's own type, so that
// they are registers on any machine with such registers. Internal linkage: see blocked_product.h.
#pragma once

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

struct UnitPortable {
  using Element = float;
  using Sum = float;
  static constexpr int32_t kMr = 6;
  static constexpr int32_t kNr = 8;
  static constexpr int32_t kMc = 384;
  static constexpr int32_t kKc = 256;
  static constexpr int32_t kKPart = kKc;
  static constexpr int32_t kFetchEvery = 32;
  static constexpr int32_t kAStride = kKc + 16;  // room for sums of a row
  static constexpr int32_t kSumsAt = kKc;
  static constexpr int32_t kKUnit = 1;
  static constexpr int32_t kFewKc = 64;

  // With more rows widening a for each panel costs more than packing b.
  static int32_t rowsOfBInPlace(int32_t m, int64_t) { return m <= 3 ? 64 : 0; }

  static void multiply(const Element* a, const Element* b, int32_t k, int32_t rows, int32_t cols, bool first,
                       float* tile, Ahead& ahead) {
    (void)cols;  // the pad of the panel is zeros: eight columns cost as much as five
    using Function = void (*)(const Element*, const Element*, int32_t, bool, float*, Ahead&);
    static constexpr Function kBySize[6] = {sized<1>, sized<2>, sized<3>, sized<4>, sized<5>, sized<6>};
    kBySize[rows - 1](a, b, k, first, tile, ahead);
  }

  // The same for rows of a and b [k, n] in place, from element k0 of the sum on; both are widened in
  // registers.
  template <class Source>
  static void multiplyRows(const Source& source, int32_t row, int32_t rows, int32_t col, int32_t cols,
                           int32_t k0, int32_t k, bool last, float* tile) {
    (void)last;
    using Function = void (*)(const Rows&, float*);
    static constexpr Function kByRows[6] = {inPlace<1>, inPlace<2>, inPlace<3>,
                                            inPlace<4>, inPlace<5>, inPlace<6>};
    kByRows[rows - 1]({source.sourceA(row, k0), source.strideA(), source.sourceB(col, k0), source.strideB(),
                       cols, k, k0 == 0},
                      tile);
  }

 private:
  typedef float Vector __attribute__((vector_size(16)));
  typedef uint32_t Words __attribute__((vector_size(16)));
  typedef uint16_t Halves __attribute__((vector_size(8)));

  struct Rows {
    const BFloat16* a;
    int64_t lda;
    const BFloat16* b;
    int64_t ldb;
    int32_t cols;
    int32_t k;
    bool first;
  };

  static Vector widened(const BFloat16* from) {
    Halves bits;
    __builtin_memcpy(&bits, from, sizeof bits);
    return (Vector)(__builtin_convertvector(bits, Words) << 16);
  }

  template <int kRows>
  static void inPlace(const Rows& of, float* tile) {
    if (of.first) __builtin_memset(tile, 0, sizeof(float) * kRows * kNr);
    Vector sum[kRows][2];
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      sum[i.value][0] = load(tile + i.value * kNr);
      sum[i.value][1] = load(tile + i.value * kNr + 4);
    });
    BFloat16 edge[kNr] = {};
    const BFloat16 *a = of.a, *b = of.b;
    for (int32_t s = 0; s < of.k; ++s, ++a, b += of.ldb) {
      const BFloat16* from = b;
      if (of.cols < kNr) {
        __builtin_memcpy(edge, b, static_cast<size_t>(of.cols) * 2);
        from = edge;
      }
      const Vector column[2] = {widened(from), widened(from + 4)};
      unroll<kRows>([&](auto i) SLUICE_UNROLLED {
        const uint32_t x = uint32_t{a[i.value * of.lda].bits} << 16;
        const Vector row = (Vector)Words{x, x, x, x};
        sum[i.value][0] += row * column[0];
        sum[i.value][1] += row * column[1];
      });
    }
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      store(tile + i.value * kNr, sum[i.value][0]);
      store(tile + i.value * kNr + 4, sum[i.value][1]);
    });
  }

  static Vector load(const float* from) {
    Vector v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
  }
  static void store(float* to, Vector v) { __builtin_memcpy(to, &v, sizeof v); }

  template <int kRows>
  static void sized(const Element* a, const Element* b, int32_t k, bool first, float* tile, Ahead& ahead) {
    // Loading zeros that were just stored is cheaper than g++'s code for two ways to begin.
    if (first) __builtin_memset(tile, 0, sizeof(float) * kRows * kNr);
    Vector sum[kRows][2];
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<2>([&](auto v)
                    SLUICE_UNROLLED { sum[i.value][v.value] = load(tile + i.value * kNr + v.value * 4); });
    });
    for (int32_t s = 0; s < k;) {
      ahead.fetch();
      for (const int32_t end = smaller(s + kFetchEvery, k); s < end; ++s, ++a, b += kNr) {
        const Vector column[2] = {load(b), load(b + 4)};
        unroll<kRows>([&](auto i) SLUICE_UNROLLED {
          const float x = a[i.value * kAStride];
          const Vector row = {x, x, x, x};
          sum[i.value][0] += row * column[0];
          sum[i.value][1] += row * column[1];
        });
      }
    }
    unroll<kRows>([&](auto i) SLUICE_UNROLLED {
      unroll<2>([&](auto v)
                    SLUICE_UNROLLED { store(tile + i.value * kNr + v.value * 4, sum[i.value][v.value]); });
    });
  }
};

// The unit of codes for processors that cannot multiply bytes: it uses the unit of fp32, which adds the
// products of a block of the sum exactly, and adds the sums of blocks in int32.
template <class Base>
struct UnitExact : Base {
  using Sum = int32_t;
  using Element = typename Base::Element;
  static_assert(int64_t{Base::kKc} * 128 * 128 <= 1 << 24);  // whole numbers up to this are fp32

  static void multiply(const Element* a, const Element* b, int32_t k, int32_t rows, int32_t cols, bool first,
                       Sum* tile, Ahead& ahead) {
    float part[Base::kMr * Base::kNr] = {};
    Base::multiply(a, b, k, rows, cols, true, part, ahead);
    for (int32_t i = 0; i < rows * Base::kNr; ++i)
      tile[i] = static_cast<Sum>(part[i]) + (first ? 0 : tile[i]);
  }
};

}  // namespace
}  // namespace sluice::ops
