// How warp 0 fills the stages of a task with its two operands: boxes by TMA, gathered rows by copies of their
// parts, or plain loads and stores where rows do not lie at multiples of 16 bytes. All lie alike, so
// who multiplies sees no difference, but that it must fence what was not copied by TMA.
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/part.h"
#include "ops/gpu/ring.h"
#include "ops/gpu/row_index.h"
#include "ops/gpu/task_record.h"
#include "runtime/abi/gpu/product_plan.h"

namespace sluice::gpu {

inline constexpr uint32_t kLoadedRowBytes = 128;

enum class LoadWay : uint8_t {
  kBoxes = 0,   // by TMA
  kParts = 1,   // gathered, by copyPart()
  kStores = 2,  // by plain loads and stores
};

// What a stage has of an operand: boxes of 64 columns. From stage to stage they go on along k.
struct Operand {
  const NearMatrix* matrix;
  int32_t outer;
  Major major;
  int32_t boxes, boxRows;   // one box, or an even number
  int32_t begins[2];        // of each half of the boxes: its first row, with kMn its first column
  int32_t rows;             // of a box that may be read
  const int32_t* rowIndex;  // null: none (Product::rowIndex)
  int32_t indexEnd;         // rows from there on are 0
  int32_t divisor;
  LoadWay way = LoadWay::kBoxes;  // set by setOperand()
};

// These are the operands of the task that is loaded. They are in shared memory, because the threads that load
// have few registers.
struct Operands {
  Operand each[2];  // a and its factor
  int32_t k;
  // The rows of matrices that a stage gathers; below 0: zeros. With Major::kK all are of `a`, else the first
  // half is, and the second half is of its factor.
  int32_t sources[128];
};

// Whether TMA copies the operand's boxes.
SLUICE_DEVICE bool isInBoxes(const NearMatrix* matrix, const int32_t* rowIndex) {
  return load(&matrix->isMapped) && rowIndex == nullptr;
}

// Gathered rows can be copied in parts if all begin and end where a part does.
SLUICE_DEVICE LoadWay chooseWay(const Operand& operand) {
  if (isInBoxes(operand.matrix, operand.rowIndex)) return LoadWay::kBoxes;
  const int firstColumn = operand.major == Major::kK ? 0 : operand.begins[0];
  const bool areWhole = firstColumn % 8 == 0 && load(&operand.matrix->columns) % 8 == 0;
  return load(&operand.matrix->isMapped) && areWhole ? LoadWay::kParts : LoadWay::kStores;
}

// By lane 0.
SLUICE_DEVICE void setOperand(Operand* to, const Operand& value) {
  store(&to->matrix, value.matrix);
  store(&to->outer, value.outer);
  store(&to->major, value.major);
  store(&to->boxes, value.boxes);
  store(&to->boxRows, value.boxRows);
  store(&to->begins[0], value.begins[0]);
  store(&to->begins[1], value.begins[1]);
  store(&to->rows, value.rows);
  store(&to->rowIndex, value.rowIndex);
  store(&to->indexEnd, value.indexEnd);
  store(&to->divisor, value.divisor);
  store(&to->way, chooseWay(value));
}

// The bytes that TMA copies into a stage.
SLUICE_DEVICE uint32_t copiedBytes(const Operand* operand) {
  return load(&operand->way) == LoadWay::kBoxes
             ? load(&operand->boxes) * load(&operand->boxRows) * kLoadedRowBytes
             : 0;
}

struct BoxPlace {
  int column, row;
};
SLUICE_DEVICE BoxPlace findBoxPlace(const Operand* from, int box, int k) {
  const int boxes = load(&from->boxes), half = 2 * box >= boxes ? 1 : 0;
  const int begin = load(&from->begins[half]) + 64 * (box - half * boxes / 2);
  return load(&from->major) == Major::kK ? BoxPlace{k, begin} : BoxPlace{begin, k};
}

// ---- Plain loads and stores.

// The row of the matrix that is row `row` of the operand; below 0: that is all 0.
SLUICE_DEVICE int sourceRow(const Operand* from, int row) {
  const int32_t* const index = load(&from->rowIndex);
  const int end = load(index == nullptr ? &load(&from->matrix)->rows : &from->indexEnd);
  return row < end ? indexedRow(index, row, load(&from->divisor)) : -1;
}

// Where the column of the operand's first row lies.
SLUICE_DEVICE const std::byte* findCorner(const Operand* from, int column) {
  const NearMatrix* const matrix = load(&from->matrix);
  return load(&matrix->data) + load(&from->outer) * load(&matrix->outerPitch) + 2 * column;
}

// Outside of the matrix a box is 0, as with TMA. A lane has 8 columns of every fourth row.
SLUICE_DEVICE void fillBox(std::byte* to, const Operand* from, BoxPlace place) {
  const NearMatrix* const matrix = load(&from->matrix);
  const int lane = laneIndex();
  const int column = place.column + lane % 8 * 8, columns = load(&matrix->columns) - column;
  const std::byte* const corner = findCorner(from, column);
  const int64_t pitch = load(&matrix->rowPitch);
  for (int row = lane / 8; row < load(&from->boxRows); row += 4) {
    const int source = row < load(&from->rows) ? sourceRow(from, place.row + row) : -1;
    const Part part = source < 0 ? Part{} : loadPart<2>(corner + source * pitch, columns);
    store(reinterpret_cast<Part*>(to + swizzled(row, lane % 8 * 16)), part);
  }
}

// ---- Gathered rows.

// The entries of the index for the rows that a stage gathers: names[i] of lane l belongs to sources[l + 32
// i].
struct NamedRows {
  int32_t names[4];
};

// Whether each stage gathers rows of its own: rows of an operand along k are the same in all.
SLUICE_DEVICE bool haveOwnSources(const Operands* operands) {
  return load(&operands->each[0].major) == Major::kMn;
}

// Reads the index for the stage from k on, and does not wait for the loads.
SLUICE_DEVICE void readIndex(const Operands* operands, int k, NamedRows* rows) {
  const bool haveOwn = haveOwnSources(operands);
  SLUICE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int half = haveOwn ? i / 2 : 0;
    const Operand* const from = &operands->each[half];
    rows->names[i] = -1;
    if (load(&from->way) != LoadWay::kParts) continue;
    const int row = laneIndex() + 32 * (i - 2 * half);
    const int first = haveOwn ? k : load(&from->begins[0]), left = load(&from->indexEnd) - first;
    if (row < left) rows->names[i] = load(&load(&from->rowIndex)[first + row]);
  }
}

// By the warp, which no longer needs the sources that were there.
SLUICE_DEVICE void setSources(Operands* operands, const NamedRows& rows) {
  const int divisor = load(&operands->each[0].divisor);
  syncWarp();
  SLUICE_UNROLL
  for (int i = 0; i < 4; ++i)
    store(&operands->sources[laneIndex() + 32 * i], namedRow(rows.names[i], divisor));
  syncWarp();
}

// Gathers the rows of all boxes of an operand, which lie side by side. A lane copies the same part of every
// fourth row. By the warp.
template <int kBoxes>
SLUICE_DEVICE void gatherBoxes(std::byte* to, const Operand* from, BoxPlace place, const int32_t* sources) {
  const NearMatrix* const matrix = load(&from->matrix);
  const int part = laneIndex() % 8, first = laneIndex() / 8;
  const int column = place.column + 8 * part, left = load(&matrix->columns) - column;
  const std::byte* const corner = findCorner(from, column);
  const int64_t pitch = load(&matrix->rowPitch);
  const int rows = load(&from->boxRows);
  SLUICE_LOOP
  for (int begin = 0; begin < rows; begin += 32, to += 32 * kLoadedRowBytes) {
    SLUICE_UNROLL
    for (int next = 0; next < 32; next += 4) {
      const int source = load(&sources[begin + next + first]);
      const std::byte* const row = corner + (source < 0 ? 0 : source) * pitch;
      SLUICE_UNROLL
      for (int box = 0; box < kBoxes; ++box)
        copyPart(to + box * 64 * kLoadedRowBytes + swizzled(next + first, 16 * part), row + 128 * box,
                 source >= 0 && left > 64 * box);
    }
  }
}

SLUICE_DEVICE void gather(std::byte* to, const Operand* from, int k, const int32_t* sources) {
  const BoxPlace place = findBoxPlace(from, 0, k);
  switch (load(&from->boxes)) {
    case 1:
      return gatherBoxes<1>(to, from, place, sources);
    case 2:
      return gatherBoxes<2>(to, from, place, sources);
    default:
      return gatherBoxes<4>(to, from, place, sources);
  }
}

// ---- A stage.

// Calls load(to, operand, place) for the boxes of an operand in a stage.
template <class Load>
SLUICE_DEVICE void forBoxes(std::byte* to, const Operand* operand, int k, const Load& loadBox) {
  const uint32_t bytes = load(&operand->boxRows) * kLoadedRowBytes;
  for (int box = 0; box < load(&operand->boxes); ++box)
    loadBox(to + box * bytes, operand, findBoxPlace(operand, box, k));
}

// Fills a free stage from k on; its second operand begins `aBytes` further. By the warp. `next` has the
// index's entries for the rows of this stage, and afterwards for the rows of the next stage: the index is
// read one stage ahead.
SLUICE_DEVICE void fillStage(std::byte* stage, uint32_t aBytes, Barrier* full, Operands* operands, int k,
                             NamedRows* next) {
  bool isHeld = false;
  SLUICE_LOOP
  for (int i = 0; i < 2; ++i) {
    const Operand* const operand = &operands->each[i];
    std::byte* const to = stage + i * aBytes;
    const LoadWay way = load(&operand->way);
    if (way == LoadWay::kStores) forBoxes(to, operand, k, fillBox);
    if (way != LoadWay::kParts) continue;
    if (!isHeld && haveOwnSources(operands)) {
      setSources(operands, *next);
      readIndex(operands, k + 64, next);
    }
    isHeld = true;
    gather(to, operand, k, &operands->sources[64 * i]);
  }
  if (isHeld) holdForParts(full);
  syncWarp();  // the one arrival is for the stores of all lanes, and after what they hold the phase for
  if (laneIndex() != 0) return;
  arriveExpecting(full, copiedBytes(&operands->each[0]) + copiedBytes(&operands->each[1]));
  SLUICE_LOOP
  for (int i = 0; i < 2; ++i)
    if (load(&operands->each[i].way) == LoadWay::kBoxes)
      forBoxes(stage + i * aBytes, &operands->each[i], k,
               [full](std::byte* to, const Operand* from, BoxPlace place) {
                 copyBox(to, load(&load(&from->matrix)->map), full, place.column, place.row,
                         load(&from->outer), load(&from->rows));
               });
}

}  // namespace sluice::gpu
