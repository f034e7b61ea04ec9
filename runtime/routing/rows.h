// Rows of a slot: what part of a buffer the tasks of one slot cover, in any space.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/routing/routing.h"

namespace sluice {

// Elements [begin, begin + rows) of the first dimension, and the expert whose weight applies to them: 0 if
// there is none, because such a weight has no expert axis.
struct RowRange {
  int32_t begin = 0;
  int32_t rows = 0;
  int32_t expert = 0;
};

// As findRows(), for spaces other than kRows.
inline RowRange rowsOfOther(const RoutingTables& tables, SpaceKind space, int64_t slot, int32_t slotSize) {
  const auto at = static_cast<size_t>(slot);
  switch (space) {
    case SpaceKind::kRows:
      break;
    case SpaceKind::kGroups:
      return {tables.groups[at].row, tables.groups[at].rows, tables.groups[at].expert};
    case SpaceKind::kExperts:
      return {tables.expertRow[at], tables.expertRow[at + 1] - tables.expertRow[at],
              static_cast<int32_t>(slot)};
    case SpaceKind::kSends:
    case SpaceKind::kReturns: {
      const Piece& piece = findPiece(tables, space, slot);
      return {piece.row, piece.rows, piece.expert};
    }
    case SpaceKind::kTokens: {
      const int32_t begin = static_cast<int32_t>(slot) * slotSize;
      return {begin, std::min(slotSize, tables.tokens - begin), 0};
    }
    case SpaceKind::kOnce:
      return {0, tables.tokens, 0};
  }
  return {};
}

// The rows of slot `slot` of `space`, in which a slot has `slotSize` tokens if it is one of tokens. Of a
// piece: rows at the owner of its slot, and the expert's number there.
// Every task calls it, most of them for rows: that part is small enough to be inlined.
inline RowRange findRows(const RoutingTables& tables, SpaceKind space, int64_t slot, int32_t slotSize) {
  if (space != SpaceKind::kRows) return rowsOfOther(tables, space, slot, slotSize);
  const Slot& own = tables.slots[static_cast<size_t>(slot)];
  return {own.row, own.rows, own.expert};
}

}  // namespace sluice
