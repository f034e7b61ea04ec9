// Results on their way between the registers of a warpgroup and a matrix of bf16, 64 rows and 64 columns at a
// time: stored through shared memory, and loaded directly.
//
// A warpgroup has two areas, so that one is filled while the stores of the other still read. Rows after those
// of the task are another's and never touched.
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/part.h"
#include "ops/gpu/task_record.h"
#include "runtime/abi/gpu/product_plan.h"

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

// Stores the first `rows` staged rows to rows of a matrix, by plain stores of the warpgroup: of each row the
// first `columns` staged columns. `corner` is where row 0 goes.
template <int kElementBytes>
SLUICE_DEVICE void storePlain(std::byte* corner, int64_t pitch, const std::byte* staged, int rows,
                              int columns) {
  constexpr int kElements = sizeof(Part) / kElementBytes;
  SLUICE_LOOP
  for (int part = threadIndex() % 128; part < rows * 8; part += 128) {
    const int row = part / 8, place = part % 8;
    storePart<kElementBytes>(
        corner + row * pitch + place * int{sizeof(Part)},
        load(reinterpret_cast<const Part*>(staged + swizzled(row, place * sizeof(Part)))),
        columns - place * kElements);
  }
}

// Where in an area element i of this thread's fragment lies. Eight columns further on it is the same place
// but for bits of its part, so that little has to be computed for each.
template <int kElementBytes>
SLUICE_DEVICE uint32_t fragmentPlace(int i) {
  const uint32_t first = swizzled(fragmentRow(0), kElementBytes * fragmentColumn(0));
  return (first ^ (8 * kElementBytes * (i / 4))) + (i & 2) / 2 * 8 * kStagedRowBytes;
}

// Fills the next area: write(area) writes this thread's part of it. By the warpgroup. Afterwards its first
// thread may store boxes of the area, as one group, which endStores() waits for.
template <class Write>
SLUICE_DEVICE std::byte* stage(Staging* staging, const Write& write) {
  const int group = mathGroup();
  std::byte* const staged = staging->areas[staging->next];
  staging->next ^= 1;
  if (threadIndex() % 128 == 0) waitStoresRead<1>();  // the stores before the last have left this memory
  syncNamed(1 + group, 128);
  write(staged);
  fenceProxyAsyncShared();
  syncNamed(1 + group, 128);
  return staged;
}

// Stores up to 64 columns of this warpgroup's rows. By the warpgroup; what is stored is there after
// endStores().
SLUICE_DEVICE void stageRows(Staging* staging, const NearMatrix* out, GroupRows rows, ColumnRange columns,
                             const Pairs& pairs) {
  std::byte* const staged = stage(staging, [&pairs](std::byte* area) {
    SLUICE_UNROLL
    for (int i = 0; i < 32; i += 2)
      store(reinterpret_cast<uint32_t*>(area + fragmentPlace<2>(i)), pairs[i / 2]);
  });
  // What lies outside of the matrix is not written. A box of fewer rows would reach into the next slot, a box
  // of fewer columns from the columns of gate into the columns of up.
  const bool isBox = rows.count == 64 && load(&out->isMapped) &&
                     (columns.first + 64 <= columns.end || columns.end == load(&out->columns));
  if (!isBox) {
    const int64_t pitch = load(&out->rowPitch);
    storePlain<2>(load(&out->data) + rows.first * pitch + 2 * columns.first, pitch, staged, rows.count,
                  columns.end - columns.first);
  } else if (threadIndex() % 128 == 0) {
    storeBox(load(&out->map), staged, columns.first, rows.first, 0);
  }
  if (threadIndex() % 128 == 0) groupStores();
}

// Afterwards thread 0 of the warpgroup may signal what was stored.
SLUICE_DEVICE void endStores() {
  syncNamed(1 + mathGroup(), 128);  // plain stores of all threads
  if (threadIndex() % 128 == 0) waitStores<0>();
}

// Loads up to 64 columns of this warpgroup's rows; 0 for what is not there.
SLUICE_DEVICE void loadRows(const NearMatrix* from, GroupRows rows, ColumnRange columns, Pairs& pairs) {
  const int64_t pitch = load(&from->rowPitch);
  const std::byte* const corner = load(&from->data) + rows.first * pitch + 2 * columns.first;
  const auto at = [corner, pitch](int i) { return corner + fragmentRow(i) * pitch + 2 * fragmentColumn(i); };
  const bool isAnyAligned = isAligned(corner, 4) && pitch % 4 == 0;
  if (isAnyAligned && columns.first + 64 <= columns.end) {  // without branches, so all at once
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
