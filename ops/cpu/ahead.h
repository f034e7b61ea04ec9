// Prefetching, and what a Unit of blocked_product.h prefetches or packs while it multiplies. Internal
// linkage: see there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cpu/unroll.h"

namespace sluice::ops {
namespace {

// Prefetches a cache line into the second level. In the first level it would evict data in use, and the
// second level allows more outstanding lines. Never faults.
inline void fetchSoon(const void* line) { __builtin_prefetch(line, 0, 2); }

// Into the first level, of what is used once.
inline void fetchNear(const void* line) { __builtin_prefetch(line, 0, 3); }

constexpr int32_t kLineBytes = 64;
constexpr int32_t kLineOfBf16 = kLineBytes / 2;

// The cache lines of some rows of memory, to be prefetched one after another.
class Lines {
 public:
  Lines() = default;
  // `bytes` bytes of each of `rows` rows, which begin `stride` bytes apart, or at index[i] * stride.
  Lines(const void* from, int32_t rows, int64_t stride, int64_t bytes, const int32_t* index = nullptr)
      : from_(static_cast<const char*>(from)), stride_(stride), index_(index) {
    const int64_t ofRow =
        (__builtin_bit_cast(intptr_t, from) % kLineBytes + bytes + kLineBytes - 1) / kLineBytes;
    inRow_ = leftInRow_ = static_cast<int32_t>(ofRow);
    left_ = static_cast<int32_t>(rows * ofRow);
    if (left_ > 0) beginRow();
  }

  // Begins anew with what `make` returns, made in place: a copy would wait for what was just written.
  template <class Make>
  void become(const Make& make) {
    new (this) Lines(make());
  }
  static void* operator new(size_t, void* at) { return at; }
  // The lines shall be prefetched by this number of calls of fetch().
  void spreadOver(int32_t calls) {
    if (left_ > 0) perCall_ = calls > 0 ? (left_ + calls - 1) / calls : left_;
  }
  void areUsedOnce() { isNear_ = true; }
  int32_t left() const { return left_; }
  void fetch() {
    for (int32_t i = 0; i < perCall_ && left_ > 0; ++i, --left_) {
      isNear_ ? fetchNear(at_) : fetchSoon(at_);
      at_ += kLineBytes;
      if (--leftInRow_ > 0) continue;
      leftInRow_ = inRow_;
      if (left_ > 1) beginRow();
    }
  }

 private:
  void beginRow() {
    at_ = from_ + (index_ == nullptr ? row_ : index_[row_]) * stride_;
    ++row_;
  }

  const char *from_ = nullptr, *at_ = nullptr;
  int64_t stride_ = 0;
  const int32_t* index_ = nullptr;
  int32_t left_ = 0, inRow_ = 0, leftInRow_ = 0, perCall_ = 0, row_ = 0;
  bool isNear_ = false;
};

// What a Unit prefetches while it multiplies: of both operands, and of the result.
struct Ahead {
  Lines a, b, c;
  bool hasLines() const { return (a.left() | b.left() | c.left()) != 0; }
  void fetch() {
    a.fetch();
    b.fetch();
    c.fetch();
  }
};

// The same, of a Unit that also prefetches the panel itself, as it reads that.
struct AheadInPanel : Ahead {};

// What a Unit with AVX2 prefetches as it reads kBytes at `from` of a panel: the bytes that it reads soon,
// once, in the order of memory.
template <int32_t kBytes>
SLUICE_UNROLLED inline void fetchInPanel(const void* from) {
  constexpr int32_t kPanelBytesAhead = 4096;
  unroll<kBytes / kLineBytes>([&](auto line) SLUICE_UNROLLED {
    fetchNear(static_cast<const char*>(from) + kPanelBytesAhead + line.value * kLineBytes);
  });
}

// The same, of a Unit that also packs the next panel.
template <class NextPanel>
struct AheadPacking : Ahead {
  NextPanel next;
  SLUICE_UNROLLED void fetch() {
    Ahead::fetch();
    next.step();
  }
};
template <class AnyAhead>
constexpr bool kPacksNext = requires(AnyAhead& ahead) { ahead.next; };

}  // namespace
}  // namespace sluice::ops
