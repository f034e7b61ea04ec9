// The sizes that the cost model has evaluated, and which of them it prefers.
//
// The model is not exact: of the sizes within its noise of the fastest, it prefers those with the least sum
// of step time and work, in seconds per core. So if the link bounds a step, and all sizes are equally fast,
// it chooses those that leave cores the most idle time, which helps if the link is faster than specified, or
// if other work runs on the cores: the step never gets slower by more than the work shrinks. If computing
// bounds the step, step time and work are nearly the same, and it prefers wide tiles: where two cores share
// the rows of an expert, each reads them, and what the other has written, which the model does not know. From
// 1024 columns on that costs less than the uneven end that long tasks make of an unexpected routing.
//
// Owns its data; used by one thread. The same sizes in the same order give the same preference.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/cost/cost.h"

namespace sluice {

struct SeenSize {
  CutSizes sizes;
  double seconds = 0;  // of the step
  double busy = 0;     // average work per core, part of `seconds`
};

class SeenSizes {
 public:
  void add(const CutSizes& sizes, const LayerCost& cost);
  bool empty() const { return seen_.empty(); }

  const SeenSize& fastest() const { return seen_[fastest_]; }  // the first of them
  const SeenSize& preferred() const;                           // not if empty(), like all below

  // The preferred sizes first, one of each kind, since sizes that hardly differ take equally long; and the
  // fastest, against which the others are judged.
  std::vector<CutSizes> candidates(size_t most) const;

  // Why a size is `chosen`: its time with the best of the other sizes, and the time of the best other value.
  // `valueOf` numbers the values of that size, `text` names them.
  std::string why(const CutSizes& chosen, const std::function<int64_t(const CutSizes&)>& valueOf,
                  const std::function<std::string(const CutSizes&)>& text) const;

  // Why the fastest was not chosen: the chosen one is equally fast with less work, or wider tiles. Empty if
  // the fastest was chosen.
  std::string whyNotFastest(const CutSizes& chosen) const;

 private:
  bool isAsFast(const SeenSize& size) const;
  bool isBetter(const SeenSize& a, const SeenSize& b) const;
  std::vector<const SeenSize*> inOrder() const;

  std::vector<SeenSize> seen_;
  size_t fastest_ = 0;
};

// Sizes, and seconds, in the form in which decisions print them.
std::string sizesText(const CutSizes& sizes);
std::string timeText(double seconds);

}  // namespace sluice
