// The ways to lay a layer out on ranks that a plan compares. Value types and free functions of values.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"
#include "tools/bench/cases.h"

namespace sluice::tools {

// Numbers of ranks from `first` on, doubling, up to `last`.
struct RankRange {
  int first = 1, last = 1;

  std::vector<int> ranks() const;
};

// "8..1024" or "8". Errors: not of that form; numbers outside 1 to 4096; an end before its beginning.
Expected<RankRange> parseRanks(std::string_view text);

// "1,2,4". Errors: an empty list; a number outside 1 to 4096.
Expected<std::vector<int>> parseTp(std::string_view text);

// "64,128" or "auto,64". Errors: an empty list; what is neither `auto`, which gives 0, nor a multiple of 16
// from 16 to 65536.
Expected<std::vector<int>> parseSlotRows(std::string_view text);

struct Layout {
  int ep = 1, tp = 1;
  int slotRows = 0;  // 0: the compiler's choice
  int ranks() const { return ep * tp; }
};

// By ranks, then tp, then slots: those where the ranks can share the experts, and each expert's columns
// evenly.
std::vector<Layout> listLayouts(const LayerCase& layer, const RankRange& range, const std::vector<int>& tp,
                                const std::vector<int>& slotRows = {0});

}  // namespace sluice::tools
