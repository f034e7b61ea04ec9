#include "compiler/analysis/tiles.h"

#include <algorithm>

#include "runtime/program/op_table.h"

namespace sluice {
namespace {

constexpr int32_t kTileUnit = 16;  // kernels work on as many columns at once

}  // namespace

int32_t evenTile(int32_t length, int32_t most) {
  return std::min(equalTile(length, most, std::min(most, kTileUnit)), length);
}

void cutTiles(OpKind op, bool wholeRows, const TileSizes& sizes, Tiling& tiling) {
  const OpInfo& info = infoOf(op);
  if (info.cut == Cut::kRectangles) {
    tiling.tileM = evenTile(tiling.m, sizes.weightGradRows);
    tiling.tileN = evenTile(tiling.n, sizes.weightGradColumns);
  } else if (info.cut == Cut::kColumns) {
    const int32_t least = std::min(sizes.gmmColumns, kTileUnit);
    const int32_t most = std::max(sizes.gmmColumns / info.weightParts, least);
    tiling.tileN = wholeRows || most >= tiling.n ? tiling.n : evenTile(tiling.n, most);
  }
}

}  // namespace sluice
