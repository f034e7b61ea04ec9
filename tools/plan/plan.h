// A plan: the ways to lay a layer out on ranks that it compares, and its rows, which are the results of
// simulation for each layout, as text and as JSON. Value types and free functions of values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"
#include "runtime/sim/sim_result.h"
#include "tools/bench/cases.h"
#include "tools/simulate/steps.h"

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

// What simulation says of a layout.
struct PlannedLayout {
  Layout layout;
  std::vector<std::string> entries;  // their names
  std::vector<double> seconds;       // by entry, until the last rank ends
  double tokensPerSecond = 0;        // of all ranks
  double use = 0;                    // part of the time of matrix (or unified) cores in which they ran tasks
  double exposed = 0;                // seconds, mean of the ranks: rows on their way, and nobody multiplied
  double memory = 0;                 // bytes of a rank in a balanced step: the runtime's and the caller's
  std::string bound;                 // what most of the time of the rank that ends last is
};

// `results`: one per entry, in order.
PlannedLayout planned(const Layout& layout, const TaskProgram& program, const LayerCase& layer,
                      const std::vector<SimResult>& results);

// With a mark at the fastest layout of each number of ranks. Slots have a column, and a field of the JSON, if
// any row was compiled with given ones.
std::string planText(const LayerCase& layer, const std::string& target, const std::string& routing,
                     const std::vector<PlannedLayout>& rows);
std::string planJson(const LayerCase& layer, const std::string& target, const std::string& routing,
                     const std::vector<PlannedLayout>& rows);

}  // namespace sluice::tools
