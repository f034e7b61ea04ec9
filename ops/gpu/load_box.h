// How warp 0 fills the stages of a task with its two operands: boxes by TMA, gathered rows by a box of TMA
// for each, or plain loads and stores where an operand has no map or its rows are scaled. All lie alike, so
// who multiplies sees no difference.
#pragma once

#include "ops/gpu/hw.h"
#include "ops/gpu/part.h"
#include "ops/gpu/product_plan.h"
#include "ops/gpu/ring.h"
#include "ops/gpu/row_index.h"

namespace sluice::gpu {

inline constexpr uint32_t kLoadedRowBytes = 128;

// What a stage has of an operand: boxes of 64 columns. From stage to stage they go on along k.
struct Operand {
  const Matrix* matrix;
  int32_t outer;
  Major major;
  int32_t boxes, boxRows;   // one box, or an even number
  int32_t begins[2];        // of each half of the boxes: its first row, with kMn its first column
  int32_t rows;             // of a box that may be read
  const int32_t* rowIndex;  // null: none (Product::rowIndex)
  int32_t indexEnd;         // rows from there on are 0
  int32_t divisor;
  const float* scale;  // null: none (WeightGrad::scale)
  bool isCopied;       // by TMA
};

// Of the task that is loaded. In shared memory, because the threads that load have few registers.
struct Operands {
  Operand each[2];  // a and its factor
  int32_t k;
};

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
  store(&to->scale, value.scale);
  store(&to->isCopied, value.scale == nullptr && load(&value.matrix->isMapped));
}

// Before copies of any lane. By the warp.
SLUICE_DEVICE void fenceMaps(const Operands* operands) {
  for (int i = 0; i < 2; ++i)
    if (load(&operands->each[i].isCopied)) fenceMap(&load(&operands->each[i].matrix)->map);
}

// Of a stage.
SLUICE_DEVICE uint32_t copiedBytes(const Operand* operand) {
  return load(&operand->isCopied) ? load(&operand->boxes) * load(&operand->boxRows) * kLoadedRowBytes : 0;
}

struct BoxPlace {
  int column, row;
};
SLUICE_DEVICE BoxPlace placeOf(const Operand* from, int box, int k) {
  const int boxes = load(&from->boxes), half = 2 * box >= boxes ? 1 : 0;
  const int begin = load(&from->begins[half]) + 64 * (box - half * boxes / 2);
  return load(&from->major) == Major::kK ? BoxPlace{k, begin} : BoxPlace{begin, k};
}

// Of row `row`, as if scaled bf16 had been in memory.
SLUICE_DEVICE void scalePart(const Operand* from, int row, Part* part) {
  const float* const scales = load(&from->scale);
  if (scales == nullptr) return;
  const float scale = load(&scales[row]);
  SLUICE_UNROLL
  for (uint32_t& word : part->words) word = packBf16(firstBf16(word) * scale, secondBf16(word) * scale);
}

// The row of the matrix that is row `row` of the operand; below 0: that is all 0.
SLUICE_DEVICE int sourceOf(const Operand* from, int row) {
  const int32_t* const index = load(&from->rowIndex);
  const int end = load(index == nullptr ? &load(&from->matrix)->rows : &from->indexEnd);
  return row < end ? indexedRow(index, row, load(&from->divisor)) : -1;
}

// Fills a box by plain loads and stores of the warp. Outside of the matrix it is 0, as with TMA. A lane has 8
// columns of every fourth row.
SLUICE_DEVICE void fillBox(std::byte* to, const Operand* from, BoxPlace place) {
  const Matrix* const matrix = load(&from->matrix);
  const int column = place.column + laneIndex() % 8 * 8, columns = load(&matrix->columns) - column;
  const std::byte* const corner =
      load(&matrix->data) + load(&from->outer) * load(&matrix->outerPitch) + 2 * column;
  const int64_t pitch = load(&matrix->rowPitch);
  for (int row = laneIndex() / 8; row < load(&from->boxRows); row += 4) {
    const int source = row < load(&from->rows) ? sourceOf(from, place.row + row) : -1;
    const std::byte* const at = corner + source * pitch;
    Part part = {};
    if (source >= 0) {
      part = loadPart<2>(at, columns);
      scalePart(from, place.row + row, &part);
    }
    store(reinterpret_cast<Part*>(to + swizzled(row, laneIndex() % 8 * 16)), part);
  }
}

// Fills a box by one of TMA for each row. By the warp: a lane has every 32nd row.
SLUICE_DEVICE void gatherBox(std::byte* to, const Operand* from, BoxPlace place, Barrier* full) {
  const Matrix* const matrix = load(&from->matrix);
  for (int row = laneIndex(); row < load(&from->boxRows); row += 32) {
    const int source = row < load(&from->rows) ? sourceOf(from, place.row + row) : -1;
    copyBox(to + row * kLoadedRowBytes, &matrix->map, full, place.column,
            source < 0 ? load(&matrix->rows) : source, load(&from->outer), 1);
  }
}

// Calls load(to, operand, place) for the boxes in a stage of those operands that are copied by TMA, or of the
// others.
template <class Load>
SLUICE_DEVICE void forBoxes(std::byte* stage, const Operands* operands, int k, bool areCopied,
                            const Load& loadBox) {
  std::byte* to = stage;
  for (int i = 0; i < 2; ++i) {
    const Operand* const operand = &operands->each[i];
    for (int box = 0; box < load(&operand->boxes); ++box, to += load(&operand->boxRows) * kLoadedRowBytes)
      if (load(&operand->isCopied) == areCopied) loadBox(to, operand, placeOf(operand, box, k));
  }
}

// Fills a free stage from k on. By the warp.
SLUICE_DEVICE void fillStage(std::byte* stage, Barrier* full, const Operands* operands, int k) {
  uint32_t copied = 0;
  for (int i = 0; i < 2; ++i) copied += copiedBytes(&operands->each[i]);
  if (!load(&operands->each[0].isCopied) || !load(&operands->each[1].isCopied)) {
    forBoxes(stage, operands, k, false,
             [](std::byte* to, const Operand* from, BoxPlace place) { fillBox(to, from, place); });
    fenceProxyAsync();  // products read what this lane has stored
    syncWarp();         // the one arrival is for the stores of all lanes
  }
  if (laneIndex() == 0) arriveExpecting(full, copied);
  syncWarp();  // bytes of any lane are expected before they land
  forBoxes(stage, operands, k, true, [full](std::byte* to, const Operand* from, BoxPlace place) {
    if (load(&from->rowIndex) != nullptr)
      gatherBox(to, from, place, full);
    else if (laneIndex() == 0)
      copyBox(to, &load(&from->matrix)->map, full, place.column, place.row, load(&from->outer),
              load(&from->rows));
  });
}

}  // namespace sluice::gpu
