// Results on their way between the registers of a warpgroup and a matrix of bf16, 64 rows and 64 columns at a
// time: stored through shared memory, and loaded directly.
//
// A warpgroup has two areas, so that one is filled while the stores of the other still read. Rows after those
// of the task are another's and never touched.
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/product_plan.h"

// An array stays in registers only where every index is a constant.
#if defined(__CUDACC__)
#define SLUICE_UNROLL _Pragma("unroll")
#else
#define SLUICE_UNROLL
#endif

namespace sluice::gpu {

inline constexpr uint32_t kStagedRowBytes = 128;
inline constexpr uint32_t kStagedBytes = 64 * kStagedRowBytes;

// 64 columns of the thread's fragment (hw.h): pair i is of elements 2 i and 2 i + 1.
using Pairs = uint32_t[16];

SLUICE_DEVICE int mathGroup() { return threadIndex() / 128 - 1; }

// The rows of a task that are this warpgroup's: up to 64.
struct GroupRows {
  int first;
  int count;
};
SLUICE_DEVICE GroupRows groupRows(const Product* product) {
  const int group = mathGroup();
  const int left = load(&product->rows) - 64 * group;
  const int rows = left < 0 ? 0 : left > 64 ? 64 : left;
  return {load(&product->firstRow) + 64 * group, rows};
}

// Columns of a matrix, at most 64 of which are staged at once.
struct ColumnRange {
  int first;
  int end;  // none from there on is touched
};

// A value of each thread of the warpgroup, for one task.
struct Staging {
  std::byte (*areas)[kStagedBytes];  // two
  int next;                          // the area to fill
};

struct alignas(16) Part {
  uint64_t columns[2];  // 8 of bf16
};

// What is no whole box, by plain stores: rows `skipped` and on. A box of 16 rows would reach into the next
// slot, one of 64 columns from the columns of gate into those of up.
SLUICE_DEVICE void storePlain(const Matrix* out, const std::byte* staged, GroupRows rows, int skipped,
                              ColumnRange columns) {
  std::byte* const data = load(&out->data);
  const int64_t pitch = load(&out->rowPitch);
  const int left = columns.end - columns.first;
  const bool isAligned = columns.first % 8 == 0;
  for (int part = threadIndex() % 128; part < (rows.count - skipped) * 8; part += 128) {
    const int row = skipped + part / 8, begin = part % 8 * 8;  // 8 columns are 16 bytes
    const std::byte* const from = staged + swizzled(row, 2 * begin);
    std::byte* const to = data + (rows.first + row) * pitch + 2 * (columns.first + begin);
    if (isAligned && begin + 8 <= left)
      store(reinterpret_cast<Part*>(to), load(reinterpret_cast<const Part*>(from)));
    else
      for (int i = 0; i < 8 && begin + i < left; ++i)
        store(reinterpret_cast<uint16_t*>(to) + i, load(reinterpret_cast<const uint16_t*>(from) + i));
  }
}

// Fills the next area: write(area) writes this thread's part of it. By the warpgroup. Afterwards its first
// thread may store boxes of the area, as one group, which endStores() waits for.
template <class Write>
SLUICE_DEVICE std::byte* stage(Staging* staging, const Write& write) {
  const int group = mathGroup();
  std::byte* const staged = staging->areas[staging->next];
  staging->next ^= 1;
  if (threadIndex() % 128 == 0) waitStoresRead<1>();  // those of the time before last have left this memory
  syncNamed(1 + group, 128);
  write(staged);
  fenceProxyAsync();
  syncNamed(1 + group, 128);
  return staged;
}

// Stores up to 64 columns of this warpgroup's rows. By the warpgroup; what is stored is there after
// endStores().
SLUICE_DEVICE void stageRows(Staging* staging, const Matrix* out, GroupRows rows, ColumnRange columns,
                             const Pairs& pairs) {
  std::byte* const staged = stage(staging, [&pairs](std::byte* area) {
    SLUICE_UNROLL
    for (int i = 0; i < 32; i += 2)
      store(reinterpret_cast<uint32_t*>(area + swizzled(fragmentRow(i), 2 * fragmentColumn(i))),
            pairs[i / 2]);
  });
  // what lies outside of the matrix is not written
  const bool isBox = columns.first + 64 <= columns.end || columns.end == load(&out->columns);
  const int boxRows = isBox ? rows.count / 16 * 16 : 0;
  if (threadIndex() % 128 == 0) {
    for (int i = 0; i < boxRows; i += 16)
      storeBox(&out->map, staged + i * kStagedRowBytes, columns.first, rows.first + i, 0);
    groupStores();
  }
  storePlain(out, staged, rows, boxRows, columns);
}

// Afterwards thread 0 of the warpgroup may signal what was stored.
SLUICE_DEVICE void endStores() {
  syncNamed(1 + mathGroup(), 128);  // plain stores of all threads
  if (threadIndex() % 128 == 0) waitStores<0>();
}

// Loads up to 64 columns of this warpgroup's rows; 0 for what is not there.
SLUICE_DEVICE void loadRows(const Matrix* from, GroupRows rows, ColumnRange columns, Pairs& pairs) {
  const int64_t pitch = load(&from->rowPitch);
  const std::byte* const corner = load(&from->data) + rows.first * pitch + 2 * columns.first;
  const auto at = [corner, pitch](int i) { return corner + fragmentRow(i) * pitch + 2 * fragmentColumn(i); };
  if (columns.first % 2 == 0 && columns.first + 64 <= columns.end) {  // without branches, so all at once
    SLUICE_UNROLL
    for (int i = 0; i < 32; i += 2)
      pairs[i / 2] = fragmentRow(i) < rows.count ? load(reinterpret_cast<const uint32_t*>(at(i))) : 0;
    return;
  }
  SLUICE_UNROLL
  for (int i = 0; i < 32; i += 2) {
    const auto* const pair = reinterpret_cast<const uint16_t*>(at(i));
    const int left = fragmentRow(i) < rows.count ? columns.end - columns.first - fragmentColumn(i) : 0;
    const uint32_t first = left > 0 ? load(pair) : 0;
    const uint32_t second = left > 1 ? load(pair + 1) : 0;
    pairs[i / 2] = first | second << 16;
  }
}

}  // namespace sluice::gpu
