#include "ops/bench/probes.h"

#include <algorithm>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/base/huge_pages.h"

namespace sluice::ops {
namespace {

#if defined(__x86_64__)

__attribute__((target("avx512f"))) uint64_t readWide(const CacheLine* from, size_t lines) {
  __m512i sum[4] = {};
  const auto* line = reinterpret_cast<const __m512i*>(from);
  for (; lines >= 4; lines -= 4, line += 4)
    for (int i = 0; i < 4; ++i) sum[i] = _mm512_xor_si512(sum[i], _mm512_load_si512(line + i));
  for (; lines > 0; --lines, ++line) sum[0] = _mm512_xor_si512(sum[0], _mm512_load_si512(line));
  alignas(64) uint64_t words[8], all = 0;
  _mm512_store_si512(words,
                     _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3])));
  for (uint64_t word : words) all ^= word;
  return all;
}

__attribute__((target("avx512f"))) void streamWide(CacheLine* to, size_t lines, uint64_t word) {
  const __m512i value = _mm512_set1_epi64(static_cast<int64_t>(word));
  for (auto* line = reinterpret_cast<__m512i*>(to); lines > 0; --lines, ++line)
    _mm512_stream_si512(line, value);
}

bool hasWide() { return __builtin_cpu_supports("avx512f") != 0; }

uint64_t readNarrow(const CacheLine* from, size_t lines) {
  __m128i sum[4] = {};
  const auto* part = reinterpret_cast<const __m128i*>(from);
  for (; lines > 0; --lines, part += 4)
    for (int i = 0; i < 4; ++i) sum[i] = _mm_xor_si128(sum[i], _mm_load_si128(part + i));
  const __m128i all = _mm_xor_si128(_mm_xor_si128(sum[0], sum[1]), _mm_xor_si128(sum[2], sum[3]));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_xor_si128(all, _mm_unpackhi_epi64(all, all))));
}

void streamNarrow(CacheLine* to, size_t lines, uint64_t word) {
  const __m128i value = _mm_set1_epi64x(static_cast<int64_t>(word));
  auto* part = reinterpret_cast<__m128i*>(to);
  for (; lines > 0; --lines, part += 4)
    for (int i = 0; i < 4; ++i) _mm_stream_si128(part + i, value);
}

void fence() { _mm_sfence(); }

#else

uint64_t readWide(const CacheLine*, size_t) { return 0; }
void streamWide(CacheLine*, size_t, uint64_t) {}
bool hasWide() { return false; }

uint64_t readNarrow(const CacheLine* from, size_t lines) {
  uint64_t sum[8] = {}, all = 0;
  const auto* word = reinterpret_cast<const uint64_t*>(from);
  for (; lines > 0; --lines, word += 8)
    for (int i = 0; i < 8; ++i) sum[i] ^= word[i];
  for (uint64_t part : sum) all ^= part;
  return all;
}

void streamNarrow(CacheLine* to, size_t lines, uint64_t word) {
  auto* words = reinterpret_cast<uint64_t*>(to);
  std::fill(words, words + lines * 8, word);
}

void fence() {}

#endif

}  // namespace

std::vector<CacheLine> probedMemory(size_t bytes) {
  std::vector<CacheLine> lines;
  lines.reserve(bytes / sizeof(CacheLine));
  adviseHugePages(lines.data(), bytes);
  lines.resize(bytes / sizeof(CacheLine));
  return lines;
}

uint64_t readMemory(std::span<const CacheLine> memory) {
  return hasWide() ? readWide(memory.data(), memory.size()) : readNarrow(memory.data(), memory.size());
}

void streamMemory(std::span<CacheLine> memory, uint64_t word) {
  hasWide() ? streamWide(memory.data(), memory.size(), word)
            : streamNarrow(memory.data(), memory.size(), word);
  fence();
}

}  // namespace sluice::ops
