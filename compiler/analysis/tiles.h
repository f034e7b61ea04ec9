// cut-tasks: computes the slots, windows and tiles of a program, from the shapes of its families and the
// chosen sizes.
//
// A tile is at most the given size, and the tiles of one dimension are even: the last is not a sliver.
#pragma once

#include <cstdint>

#include "compiler/analysis/finding.h"

namespace sluice {

struct TileSizes {
  int32_t gmmColumns = 256;         // columns of a gmm's output per task
  int32_t weightGradRows = 256;     // of a weight gradient per task: this
  int32_t weightGradColumns = 256;  // by this
  friend bool operator==(const TileSizes&, const TileSizes&) = default;
};

// The sizes by which a program is cut.
struct CutSizes {
  int32_t slotRows = 128;
  int32_t tokenSlot = 32;
  TileSizes tiles;
  friend bool operator==(const CutSizes&, const CutSizes&) = default;
};

// How many slots of each space one run of a lane's table covers.
struct Windows {
  int32_t tokens = 32;
  int32_t rows = 16;
  int32_t sends = 64;
  int32_t returns = 64;
  int32_t experts = 1;
  friend bool operator==(const Windows&, const Windows&) = default;
};

inline constexpr int32_t kTileUnit = 16;  // kernels process this many columns at once

// The tile that cuts `length` evenly into tiles of at most `most`, a multiple of `unit` if `most` is at least
// that and the length allows it. length, most >= 1.
int32_t evenTile(int32_t length, int32_t most, int32_t unit = kTileUnit);

// Sets the tiles of a tiling whose other fields specify what the op computes. An op that multiplies by
// columns of gate and of up has tiles half as wide as other products, since each tile is computed from
// equally many columns of both. `wholeRows`: one tile, because the gradient of a row's weight needs all
// columns.
void cutTiles(OpKind op, bool wholeRows, const TileSizes& sizes, Tiling& tiling);

// Cuts the slots and tilings of the program by these sizes. Groups keep their size, families keep their
// `tiles`.
void cutBy(const CutSizes& sizes, TaskProgram& program);

// Returns `program`, the result of form-tasks, cut by these sizes into slots, windows and tiles. The window
// of groups has about as many rows as the window of slots. Errors: families of more than 2^20 tiles, with
// their places.
Expected<TaskProgram> cutTasks(TaskProgram program, const CutSizes& sizes, const Windows& windows);

}  // namespace sluice
