// Additions to sums in registers with AVX2. In assembly, because g++ 12 otherwise moves sums of unrolled
// loops between registers, or adds up integers in another order: either way more values are alive than there
// are registers, and every step stores and loads them. Internal linkage: see blocked_product.h.
#pragma once

#include <immintrin.h>

#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

// sum += x * y.
SLUICE_UNROLLED inline void multiplyAdd(__m256& sum, __m256 x, __m256 y) {
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y));
}

// sum += terms, by elements of so many bits.
SLUICE_UNROLLED inline void add32(__m256i& sum, __m256i terms) {
  asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(terms));
}
SLUICE_UNROLLED inline void add16(__m256i& sum, __m256i terms) {
  asm("vpaddw %1, %0, %0" : "+x"(sum) : "x"(terms));
}

}  // namespace
}  // namespace sluice::ops
