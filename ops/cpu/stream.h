// Stores past the caches, for results that nobody reads soon: they fetch no line that is overwritten whole,
// and push nothing out. In the form of the instruction set of the including file; plain stores on others.
// Internal linkage: see blocked_product.h.
#pragma once

#include <cstddef>
#include <cstdint>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace sluice::ops {
namespace {

constexpr int32_t kStreamBytes = 64;  // streamRow writes whole lines

inline bool canStreamTo(const void* to) { return __builtin_bit_cast(uintptr_t, to) % kStreamBytes == 0; }

// to[0, kCount) = from[0, kCount) for canStreamTo(to).
template <int32_t kCount>
void streamRow(const float* from, float* to) {
#if defined(__AVX512F__)
  static_assert(kCount % 16 == 0);
  for (int32_t j = 0; j < kCount; j += 16) _mm512_stream_ps(to + j, _mm512_loadu_ps(from + j));
#elif defined(__AVX2__)
  static_assert(kCount % 16 == 0);
  for (int32_t j = 0; j < kCount; j += 8) _mm256_stream_ps(to + j, _mm256_loadu_ps(from + j));
#else
  __builtin_memcpy(to, from, sizeof(float) * kCount);
#endif
}

// Orders what was streamed before everything that this thread stores from here on.
inline void fenceStreams() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}

}  // namespace
}  // namespace sluice::ops
