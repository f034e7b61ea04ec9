#include "ops/bench/probes.h"

#include <time.h>

#include <algorithm>
#include <cassert>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice::ops {
namespace {

constexpr size_t kLine = 64;

#if defined(__x86_64__)

__attribute__((target("avx512f"))) uint64_t readWide(const std::byte* from, size_t lines) {
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

__attribute__((target("avx512f"))) void streamWide(std::byte* to, size_t lines, uint64_t word) {
  const __m512i value = _mm512_set1_epi64(static_cast<int64_t>(word));
  for (auto* line = reinterpret_cast<__m512i*>(to); lines > 0; --lines, ++line)
    _mm512_stream_si512(line, value);
}

bool hasWide() { return __builtin_cpu_supports("avx512f") != 0; }

uint64_t readNarrow(const std::byte* from, size_t lines) {
  __m128i sum[4] = {};
  const auto* part = reinterpret_cast<const __m128i*>(from);
  for (; lines > 0; --lines, part += 4)
    for (int i = 0; i < 4; ++i) sum[i] = _mm_xor_si128(sum[i], _mm_load_si128(part + i));
  const __m128i all = _mm_xor_si128(_mm_xor_si128(sum[0], sum[1]), _mm_xor_si128(sum[2], sum[3]));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_xor_si128(all, _mm_unpackhi_epi64(all, all))));
}

void streamNarrow(std::byte* to, size_t lines, uint64_t word) {
  const __m128i value = _mm_set1_epi64x(static_cast<int64_t>(word));
  auto* part = reinterpret_cast<__m128i*>(to);
  for (; lines > 0; --lines, part += 4)
    for (int i = 0; i < 4; ++i) _mm_stream_si128(part + i, value);
}

void fence() { _mm_sfence(); }

#else

uint64_t readWide(const std::byte*, size_t) { return 0; }
void streamWide(std::byte*, size_t, uint64_t) {}
bool hasWide() { return false; }

uint64_t readNarrow(const std::byte* from, size_t lines) {
  uint64_t sum[8] = {}, all = 0;
  const auto* word = reinterpret_cast<const uint64_t*>(from);
  for (; lines > 0; --lines, word += 8)
    for (int i = 0; i < 8; ++i) sum[i] ^= word[i];
  for (uint64_t part : sum) all ^= part;
  return all;
}

void streamNarrow(std::byte* to, size_t lines, uint64_t word) {
  auto* words = reinterpret_cast<uint64_t*>(to);
  std::fill(words, words + lines * 8, word);
}

void fence() {}

#endif

double threadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Work>
Bandwidth measure(size_t bytes, int repeats, const Work& work) {
  assert(repeats > 0);
  std::vector<double> rates;
  for (int i = 0; i < repeats; ++i) {
    const double begin = threadSeconds();
    work();
    rates.push_back(static_cast<double>(bytes) / std::max(threadSeconds() - begin, 1e-9));
  }
  std::sort(rates.begin(), rates.end());
  return {rates.back(), rates[rates.size() / 2]};
}

}  // namespace

uint64_t readMemory(std::span<const std::byte> memory) {
  const size_t lines = memory.size() / kLine;
  return hasWide() ? readWide(memory.data(), lines) : readNarrow(memory.data(), lines);
}

void streamMemory(std::span<std::byte> memory, uint64_t word) {
  const size_t lines = memory.size() / kLine;
  hasWide() ? streamWide(memory.data(), lines, word) : streamNarrow(memory.data(), lines, word);
  fence();
}

Bandwidth readBandwidth(std::span<const std::byte> memory, int repeats) {
  return measure(memory.size() / kLine * kLine, repeats, [&] {
    volatile uint64_t all = readMemory(memory);
    (void)all;
  });
}

Bandwidth streamBandwidth(std::span<std::byte> memory, int repeats) {
  return measure(memory.size() / kLine * kLine, repeats, [&] { streamMemory(memory, 0x3f8ccccd3f8ccccd); });
}

}  // namespace sluice::ops
