#include "compiler/analysis/tiles.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/rounding.h"
#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

constexpr int64_t kMaxTiles = 1 << 20;  // more would make an unreasonably large table: use larger tiles

int32_t chooseWindow(const Space& space, const CutSizes& sizes, const Windows& windows) {
  switch (space.kind) {
    case SpaceKind::kTokens:
      return windows.tokens;
    case SpaceKind::kRows:
      return windows.rows;
    case SpaceKind::kSends:
      return windows.sends;
    case SpaceKind::kReturns:
      return windows.returns;
    case SpaceKind::kExperts:
      return windows.experts;
    case SpaceKind::kOnce:
      return 1;
    case SpaceKind::kGroups:
      return static_cast<int32_t>(
          std::max<int64_t>(1, int64_t{windows.rows} * sizes.slotRows / space.slotSize));
  }
  return 1;
}

}  // namespace

int32_t evenTile(int32_t length, int32_t most, int32_t unit) {
  return std::min(equalTile(length, most, std::min(most, unit)), length);
}

void cutTiles(OpKind op, bool wholeRows, const TileSizes& sizes, Tiling& tiling) {
  const OpInfo& info = findInfo(op);
  if (info.cut == Cut::kRectangles) {
    tiling.tileM = evenTile(tiling.m, sizes.weightGradRows);
    tiling.tileN = evenTile(tiling.n, sizes.weightGradColumns);
  } else if (info.cut == Cut::kColumns) {
    const bool encodes = info.vector == VectorWork::kEncode;
    const int32_t unit = encodes || findInfo(tiling.roundB).isSquare ? kMxBlock : kTileUnit;
    const int32_t least = encodes ? unit : std::min(sizes.gmmColumns, unit);
    const int32_t most = std::max(sizes.gmmColumns / std::max(1, weightParts(op, tiling)), least);
    tiling.tileN = wholeRows || most >= tiling.n ? tiling.n : evenTile(tiling.n, most, unit);
  }
}

void cutBy(const CutSizes& sizes, TaskProgram& program) {
  for (Space& space : program.spaces) {
    const SpaceKind cut = cuttingSpace(space.kind);
    if (cut == SpaceKind::kRows) space.slotSize = sizes.slotRows;
    if (cut == SpaceKind::kTokens) space.slotSize = sizes.tokenSlot;
  }
  for (Family& family : program.families)
    cutTiles(family.op, needsWholeRows(family), sizes.tiles, family.tiling);
}

Expected<TaskProgram> cutTasks(TaskProgram program, const CutSizes& sizes, const Windows& windows) {
  cutBy(sizes, program);
  for (Space& space : program.spaces) space.window = chooseWindow(space, sizes, windows);
  std::string errors;
  for (Family& family : program.families) {
    const int64_t tiles = countTiles(family.op, family.tiling);
    if (tiles > kMaxTiles)
      errors +=
          (errors.empty() ? "" : "\n") +
          errorAt(family, fmt::format("node '{}' has {} tiles, expected at most {}: choose larger tiles",
                                      family.name, tiles, kMaxTiles))
              .message;
    family.tiles = static_cast<int32_t>(tiles);
  }
  if (!errors.empty()) return Error{std::move(errors)};
  return program;
}

}  // namespace sluice
