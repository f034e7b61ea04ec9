// The kernels that go over rows for AVX-512: Vector has 16 elements.
#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/row_kernels.h"
#include "runtime/base/dtype.h"

namespace sluice::ops {
namespace {

// kWidth fp32 elements and the operations of the kernels. load and store move the first `count` elements (1
// to kWidth), the rest loads as zero; a store of bf16 rounds to nearest even. sum adds in a fixed order.
struct Vector {
  using F = __m512;
  static constexpr int32_t kWidth = 16;

  static F load(const BFloat16* from, int32_t count) {
    const __m256i bits = count == kWidth ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))
                                         : _mm256_maskz_loadu_epi16(mask(count), from);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }

  // Not vcvtneps2bf16, which treats denormals as zero.
  static void store(BFloat16* to, F x, int32_t count) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i even = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i rounded = _mm512_mask_or_epi32(even, nan, bits, _mm512_set1_epi32(0x400000));
    const __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
    if (count == kWidth)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), half);
    else
      _mm256_mask_storeu_epi16(to, mask(count), half);
  }

  static F load(const float* from, int32_t count) { return _mm512_maskz_loadu_ps(mask(count), from); }
  static void store(float* to, F x, int32_t count) { _mm512_mask_storeu_ps(to, mask(count), x); }

  static F set(float x) { return _mm512_set1_ps(x); }
  static F add(F x, F y) { return _mm512_add_ps(x, y); }
  static F sub(F x, F y) { return _mm512_sub_ps(x, y); }
  static F mul(F x, F y) { return _mm512_mul_ps(x, y); }
  static F div(F x, F y) { return _mm512_div_ps(x, y); }
  static F mulAdd(F x, F y, F z) { return _mm512_fmadd_ps(x, y, z); }
  // a if x > y, else b; comparisons with a NaN are false.
  static F above(F x, F y, F a, F b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_GT_OQ), b, a);
  }

  // 2^n * e^r with n = round(x / ln 2), |r| <= ln 2 / 2, e^r by its Taylor series to r^7 (the rest is below
  // 1e-8). Overflows to infinity, underflows to zero; a NaN stays one (min and max return their second
  // operand).
  static F exp(F x) {
    x = _mm512_max_ps(_mm512_set1_ps(-104.0f), _mm512_min_ps(_mm512_set1_ps(104.0f), x));
    const F n = _mm512_roundscale_ps(_mm512_mul_ps(x, set(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
    F r = _mm512_fnmadd_ps(n, set(0.693359375f), x);  // ln 2 in two parts; n times the first is exact
    r = _mm512_fnmadd_ps(n, set(-2.12194440e-4f), r);
    F p = set(1.0f / 5040);
    p = mulAdd(p, r, set(1.0f / 720));
    p = mulAdd(p, r, set(1.0f / 120));
    p = mulAdd(p, r, set(1.0f / 24));
    p = mulAdd(p, r, set(1.0f / 6));
    p = mulAdd(p, r, set(0.5f));
    p = mulAdd(p, r, set(1.0f));
    p = mulAdd(p, r, set(1.0f));
    return _mm512_scalef_ps(p, n);
  }

  static float sum(F x) {
    const __m256 low = _mm512_castps512_ps256(x);
    const __m256 high = _mm512_extractf32x8_ps(x, 1);
    const __m256 eight = _mm256_add_ps(low, high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
  }

 private:
  static __mmask16 mask(int32_t count) { return static_cast<__mmask16>((1u << count) - 1); }
};

}  // namespace

namespace avx512 {

constinit const RowKernels rows = kRowKernels<Vector>;

}  // namespace avx512
}  // namespace sluice::ops
