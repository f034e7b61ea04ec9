// A panel of bf16 that is packed in small pieces while the one before is multiplied. Done at once, packing
// waits for memory and for shuffles; between multiplications both are hidden. Internal linkage: see
// blocked_product.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/blocked_product.h"
#include "ops/cpu/square.h"
#include "ops/cpu/unroll.h"
#include "runtime/base/dtype.h"

namespace sluice::ops {
namespace {

// A piece is 64 pairs of the panel, out of 4 cache lines: the pairs of two rows of b, or if b lies transposed
// half a line of 8 of its rows. It takes few registers, because most hold the sums of a tile.
class NextPanelAvx512 {
 public:
  static constexpr int32_t kColumns = 64;

  // `k` elements of the sum, from `from` on, go to `panel` in the first `calls` calls of step().
  NextPanelAvx512(const BFloat16* from, int64_t ld, int32_t k, bool liesTransposed, uint16_t* panel,
                  int32_t calls)
      : from_(from), ld_(ld), panel_(panel), k_(k), pieces_((k + 1) / 2), liesTransposed_(liesTransposed) {
    const int32_t all = pieces_ + kPiecesAhead;
    turnsOfStep_ = (all + calls - 1) / calls;
    turnsOfPiece_ = calls > all ? calls / all : 1;
    linesOfTurn_ = (kLinesOfPiece + turnsOfPiece_ - 1) / turnsOfPiece_;
    wait_ = kPiecesAhead * turnsOfPiece_ + 1;
  }

  static bool canPack(int32_t cols, int32_t k, bool liesTransposed) {
    return cols == kColumns && (!liesTransposed || k % kLineOfBf16 == 0);
  }

  SLUICE_UNROLLED void step() { liesTransposed_ ? stepWith<true>() : stepWith<false>(); }

 private:
  static constexpr int32_t kLinesOfPiece = 4;
  // The number of pieces by which lines are prefetched ahead.
  static constexpr int32_t kPiecesAhead = 48;

  // Prefetches a few lines at a time: more would wait for each other.
  template <bool kTransposed>
  SLUICE_UNROLLED void stepWith() {
    for (int32_t turn = 0; turn < turnsOfStep_; ++turn) {
      const int32_t end = smaller(line_ + linesOfTurn_, pieces_ * kLinesOfPiece);
      for (; line_ < end; ++line_) fetchSoon(line<kTransposed>(line_));
      if (--wait_ > 0 || piece_ >= pieces_) continue;
      wait_ = turnsOfPiece_;
      kTransposed ? packColumns(piece_++) : packRows(piece_++);
    }
  }

  // The memory of the panel in the order of pieces.
  template <bool kTransposed>
  SLUICE_UNROLLED const BFloat16* line(uint32_t i) const {
    if constexpr (kTransposed) return from_ + i % kColumns * ld_ + i / kColumns * kLineOfBf16;
    return from_ + i / 2 * ld_ + i % 2 * kLineOfBf16;
  }

  SLUICE_UNROLLED void packRows(uint32_t piece) const {
    alignas(64) static constexpr BFloat16 kZeros[kColumns] = {};
    const BFloat16* const evenRow = from_ + int64_t{2} * piece * ld_;
    const BFloat16* const oddRow = static_cast<int32_t>(2 * piece + 1) < k_ ? evenRow + ld_ : kZeros;
    uint16_t* const to = panel_ + int64_t{piece} * 2 * kColumns;
    unroll<2>([&](auto h) SLUICE_UNROLLED {
      const __m512i even = _mm512_loadu_si512(evenRow + h.value * 32);
      const __m512i odd = _mm512_loadu_si512(oddRow + h.value * 32);
      _mm512_storeu_si512(to + h.value * 64, firstPairs(even, odd));
      _mm512_storeu_si512(to + h.value * 64 + 32, secondPairs(even, odd));
    });
  }

  SLUICE_UNROLLED void packColumns(uint32_t piece) const {
    const uint32_t line = piece / 16, eight = piece / 2 % 8, half = piece % 2;
    const BFloat16* const at = from_ + eight * 8 * ld_ + line * kLineOfBf16 + half * 16;
    const auto row = [&](int32_t i) SLUICE_UNROLLED {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + i * ld_));
    };
    // First rows i and i + 4, two lanes of 4 words of each; then word i of the lanes of 4 rows.
    __m512i words[4];
    unroll<4>([&](auto i) SLUICE_UNROLLED {
      words[i.value] =
          _mm512_mask_broadcast_i64x4(_mm512_castsi256_si512(row(i.value)), 0xf0, row(i.value + 4));
    });
    transposeLanes(words);
    uint16_t* const to = panel_ + int64_t{line * 16 + half * 8} * 2 * kColumns + eight * 16;
    unroll<4>([&](auto i) SLUICE_UNROLLED {
      const __m512i inOrder = _mm512_shuffle_i64x2(words[i.value], words[i.value], 0xd8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i.value * 2 * kColumns),
                          _mm512_castsi512_si256(inOrder));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (i.value + 4) * 2 * kColumns),
                          _mm512_extracti64x4_epi64(inOrder, 1));
    });
  }

  const BFloat16* from_;
  int64_t ld_;
  uint16_t* panel_;
  int32_t k_, pieces_;
  int32_t piece_ = 0, line_ = 0;
  int32_t turnsOfStep_, turnsOfPiece_, linesOfTurn_;
  int32_t wait_;  // turns until the next piece
  bool liesTransposed_;
};

}  // namespace
}  // namespace sluice::ops
