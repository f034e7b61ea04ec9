// Stores past the caches, for results that are not read soon: they do not fetch lines that are overwritten as
// a whole, and evict nothing. The including file's instruction set decides the form; some sets use plain
// stores. Internal linkage: see blocked_product.h.
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

// to[0, kCount) = from[0, kCount) for canStreamTo(to); whole lines.
template <int32_t kCount, class T>
void streamRow(const T* from, T* to) {
  constexpr size_t kBytes = sizeof(T) * kCount;
#if defined(__AVX512F__)
  static_assert(kBytes % kStreamBytes == 0);
  for (size_t at = 0; at < kBytes; at += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(reinterpret_cast<char*>(to) + at),
                        _mm512_loadu_si512(reinterpret_cast<const char*>(from) + at));
#elif defined(__AVX2__)
  static_assert(kBytes % kStreamBytes == 0);
  for (size_t at = 0; at < kBytes; at += 32)
    _mm256_stream_si256(
        reinterpret_cast<__m256i*>(reinterpret_cast<char*>(to) + at),
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(reinterpret_cast<const char*>(from) + at)));
#else
  __builtin_memcpy(to, from, kBytes);
#endif
}

// Orders the streamed stores before all later stores of this thread.
inline void fenceStreams() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}

}  // namespace
}  // namespace sluice::ops
