// How threads share rows of pieces.
#pragma once

#include "ops/gpu/hw.h"

namespace sluice::gpu {

// One of several workers, who together go over rows of `perRow` pieces each, at least one. At each step they
// are at consecutive pieces, also where a row has fewer pieces than there are workers.
struct RowWalk {
  SLUICE_DEVICE RowWalk(int pieces, int worker, int workers)
      : perRow(pieces),
        stepRows(workers / pieces),
        stepPieces(workers % pieces),
        row(worker / pieces),
        piece(worker % pieces) {}
  SLUICE_DEVICE void advance() {
    row += stepRows;
    piece += stepPieces;
    if (piece < perRow) return;
    piece -= perRow;
    ++row;
  }

  int perRow, stepRows, stepPieces;
  int row, piece;
};

}  // namespace sluice::gpu
