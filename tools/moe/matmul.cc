#include "tools/moe/matmul.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <vector>

#include "runtime/base/threads.h"

namespace sluice::tools {
namespace {

// A block of C is kBlockM x kBlockN, and its sum is cut every kBlockK elements: packed A (192 KB) and B (512
// KB) stay in the second-level cache. A micro tile is 6 x 8: 12 AVX2 accumulators, or 6 of AVX-512.
constexpr int64_t kTileM = 6, kTileN = 8;
constexpr int64_t kBlockM = 96, kBlockN = 256, kBlockK = 256;
static_assert(kBlockM % kTileM == 0 && kBlockN % kTileN == 0);

// Products treat numbers that are subnormal in bf16 and fp32 as zero, as operands and as results.
double flushed(double x) { return std::abs(x) < 0x1p-126 ? 0 : x; }

// Packs `lines` x `depth` elements as panels of kTile: out[panel][k][i]. Lines beyond the edge are zero.
template <int64_t kTile>
void pack(const double* p, int64_t lineStride, int64_t kStride, int64_t lines, int64_t depth, double* out) {
  for (int64_t first = 0; first < lines; first += kTile, out += kTile * depth) {
    const int64_t live = std::min(kTile, lines - first);
    if (live < kTile) std::fill(out, out + kTile * depth, 0.0);
    const double* base = p + first * lineStride;
    if (lineStride == 1)
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t i = 0; i < live; ++i) out[k * kTile + i] = flushed(base[k * kStride + i]);
    else
      for (int64_t i = 0; i < live; ++i)
        for (int64_t k = 0; k < depth; ++k) out[k * kTile + i] = flushed(base[i * lineStride + k * kStride]);
  }
}

// out[6][8] = sum over k of a[k][6] * b[k][8]. Inlined into one function per instruction set, with vectors of
// its registers' bytes: g++ keeps longer ones in memory.
template <int kBytes>
[[gnu::always_inline]] inline void microBody(const double* a, const double* b, int64_t depth, double* out) {
  using Vector [[gnu::vector_size(kBytes), gnu::may_alias]] = double;
  constexpr int64_t kLanes = kBytes / 8, kVectors = kTileN / kLanes;
  Vector acc[kTileM][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k, a += kTileM, b += kTileN) {
    Vector line[kVectors];
#pragma GCC unroll 4
    for (int64_t j = 0; j < kVectors; ++j) line[j] = *reinterpret_cast<const Vector*>(b + j * kLanes);
#pragma GCC unroll 6
    for (int64_t i = 0; i < kTileM; ++i)
#pragma GCC unroll 4
      for (int64_t j = 0; j < kVectors; ++j) acc[i][j] += a[i] * line[j];
  }
  for (int64_t i = 0; i < kTileM; ++i)
    for (int64_t j = 0; j < kVectors; ++j)
      *reinterpret_cast<Vector*>(out + i * kTileN + j * kLanes) = acc[i][j];
}

using Micro = void (*)(const double*, const double*, int64_t, double*);

void microPortable(const double* a, const double* b, int64_t depth, double* out) {
  microBody<16>(a, b, depth, out);
}

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void microAvx2(const double* a, const double* b, int64_t depth, double* out) {
  microBody<32>(a, b, depth, out);
}
[[gnu::target("avx512f")]] void microAvx512(const double* a, const double* b, int64_t depth, double* out) {
  microBody<64>(a, b, depth, out);
}

Micro selectMicro() {
  if (__builtin_cpu_supports("avx512f")) return microAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return microAvx2;
  return microPortable;
}
#else
Micro selectMicro() { return microPortable; }
#endif

void addTile(const double* tile, double* c, int64_t ldc, int64_t rows, int64_t cols, bool accumulate) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      c[i * ldc + j] = flushed(tile[i * kTileN + j] + (accumulate ? c[i * ldc + j] : 0.0));
}

struct alignas(64) Scratch {
  double a[kBlockM * kBlockK];
  double b[kBlockN * kBlockK];
  double tile[kTileM * kTileN];
};

// Computes the block of C that begins at (m0, n0).
void block(const MatmulArgs& args, int64_t m0, int64_t n0, Micro micro, Scratch& s) {
  const int64_t m = std::min(kBlockM, args.m - m0), n = std::min(kBlockN, args.n - n0);
  const MatrixView &a = args.a, &b = args.b;
  for (int64_t k0 = 0; k0 < args.k; k0 += kBlockK) {
    const int64_t depth = std::min(kBlockK, args.k - k0);
    pack<kTileM>(a.data + m0 * a.rowStride + k0 * a.colStride, a.rowStride, a.colStride, m, depth, s.a);
    pack<kTileN>(b.data + k0 * b.rowStride + n0 * b.colStride, b.colStride, b.rowStride, n, depth, s.b);
    const bool accumulate = args.accumulate || k0 > 0;
    for (int64_t j = 0; j < n; j += kTileN)
      for (int64_t i = 0; i < m; i += kTileM) {
        micro(s.a + i * depth, s.b + j * depth, depth, s.tile);
        addTile(s.tile, args.c + (m0 + i) * args.ldc + n0 + j, args.ldc, std::min(kTileM, m - i),
                std::min(kTileN, n - j), accumulate);
      }
  }
}

}  // namespace

void parallelFor(int threads, int64_t count, int64_t grain,
                 const std::function<void(int64_t, int64_t)>& body) {
  const int64_t blocks = (count + grain - 1) / grain;
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < blocks;
         i = next.fetch_add(1, std::memory_order_relaxed))
      body(i * grain, std::min(count, (i + 1) * grain));
  };
  std::vector<std::thread> helpers;
  for (int64_t i = 1; i < std::min<int64_t>(threads, blocks); ++i) {
    auto helper = startThread("matmul", work);
    if (!helper) break;  // fewer threads do the same work, later
    helpers.push_back(std::move(*helper));
  }
  work();
  for (std::thread& helper : helpers) helper.join();
}

void matmul(const MatmulArgs& args, int threads) {
  if (args.m <= 0 || args.n <= 0) return;
  if (args.k <= 0) {
    for (int64_t i = 0; i < args.m && !args.accumulate; ++i) std::fill_n(args.c + i * args.ldc, args.n, 0.0);
    return;
  }
  const Micro micro = selectMicro();
  const int64_t rows = (args.m + kBlockM - 1) / kBlockM, cols = (args.n + kBlockN - 1) / kBlockN;
  // a few blocks at a time, because each batch makes its scratch once
  const int64_t grain = std::max<int64_t>(1, rows * cols / (4 * std::max(threads, 1)));
  parallelFor(threads, rows * cols, grain, [&](int64_t begin, int64_t end) {
    const auto scratch = std::make_unique_for_overwrite<Scratch>();
    for (int64_t i = begin; i < end; ++i)
      block(args, i / cols * kBlockM, i % cols * kBlockN, micro, *scratch);
  });
}

}  // namespace sluice::tools
