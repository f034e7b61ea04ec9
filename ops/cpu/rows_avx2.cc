// The kernels that go over rows for AVX2 and FMA: Vector has 8 elements.
#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/row_kernels.h"
#include "runtime/base/dtype.h"

namespace sluice::ops {
namespace {

// rows_avx512.cc documents the members.
struct Vector {
  using F = __m256;
  static constexpr int32_t kWidth = 8;

  static F load(const BFloat16* from, int32_t count) {
    __m128i bits;
    if (count == kWidth) {
      bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    } else {
      uint16_t edge[kWidth] = {};
      __builtin_memcpy(edge, from, static_cast<size_t>(count) * 2);
      bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(edge));
    }
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }

  static void store(BFloat16* to, F x, int32_t count) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i even = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i rounded = _mm256_srli_epi32(_mm256_blendv_epi8(even, quiet, nan), 16);
    const __m256i lanes = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0x08);
    const __m128i half = _mm256_castsi256_si128(lanes);
    if (count == kWidth) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), half);
      return;
    }
    uint16_t edge[kWidth];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(edge), half);
    __builtin_memcpy(to, edge, static_cast<size_t>(count) * 2);
  }

  static F load(const float* from, int32_t count) {
    return count == kWidth ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, mask(count));
  }
  static void store(float* to, F x, int32_t count) {
    if (count == kWidth)
      _mm256_storeu_ps(to, x);
    else
      _mm256_maskstore_ps(to, mask(count), x);
  }

  static F set(float x) { return _mm256_set1_ps(x); }
  static F add(F x, F y) { return _mm256_add_ps(x, y); }
  static F sub(F x, F y) { return _mm256_sub_ps(x, y); }
  static F mul(F x, F y) { return _mm256_mul_ps(x, y); }
  static F div(F x, F y) { return _mm256_div_ps(x, y); }
  static F mulAdd(F x, F y, F z) { return _mm256_fmadd_ps(x, y, z); }
  static F above(F x, F y, F a, F b) { return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_GT_OQ)); }

  // As in rows_avx512.cc, but with 2^n in two factors, because n reaches 150 and one factor ends at 127.
  static F exp(F x) {
    x = _mm256_max_ps(set(-104.0f), _mm256_min_ps(set(104.0f), x));
    const F n =
        _mm256_round_ps(_mm256_mul_ps(x, set(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    F r = _mm256_fnmadd_ps(n, set(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, set(-2.12194440e-4f), r);
    F p = set(1.0f / 5040);
    p = mulAdd(p, r, set(1.0f / 720));
    p = mulAdd(p, r, set(1.0f / 120));
    p = mulAdd(p, r, set(1.0f / 24));
    p = mulAdd(p, r, set(1.0f / 6));
    p = mulAdd(p, r, set(0.5f));
    p = mulAdd(p, r, set(1.0f));
    p = mulAdd(p, r, set(1.0f));
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    return mul(mul(p, powerOfTwo(half)), powerOfTwo(_mm256_sub_epi32(whole, half)));
  }

  static float sum(F x) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
  }

 private:
  static __m256i mask(int32_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F powerOfTwo(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
};

}  // namespace

namespace avx2 {

constinit const RowKernels rows = kRowKernels<Vector>;

}  // namespace avx2
}  // namespace sluice::ops
