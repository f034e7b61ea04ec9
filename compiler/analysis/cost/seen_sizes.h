// Sizes that the cost model has looked at, and which of them it prefers.
//
// The model is not exact: of the sizes within its noise of the fastest those are preferred that take least of
// step and work together, in seconds of a core. So where the link bounds a step, and all sizes are equally
// fast, those that leave cores most time are chosen: a link that is faster than specified, or other work on
// the cores, makes that time count. Where computing bounds it, step and work are nearly the same. Nothing is
// given up of the step that is not saved in work.
//
// Owns what it has seen; one thread. The same sizes in the same order give the same preference.
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
  double busy = 0;     // of `seconds`: the average work of a core
};

class SeenSizes {
 public:
  void add(const CutSizes& sizes, const LayerCost& cost);
  bool empty() const { return seen_.empty(); }

  const SeenSize& fastest() const { return seen_[fastest_]; }  // the first of them
  const SeenSize& preferred() const;                           // not of none, like all below

  // The preferred ones first, one of each kind, since sizes that hardly differ take as long; and the fastest,
  // by which the others are judged.
  std::vector<CutSizes> candidates(size_t most) const;

  // Why a size is `chosen`: its time with the best of the others, and the same of the best other value.
  // `valueOf` numbers values of that size, `text` names them.
  std::string why(const CutSizes& chosen, const std::function<int64_t(const CutSizes&)>& valueOf,
                  const std::function<std::string(const CutSizes&)>& text) const;

  // Why not the fastest: equally fast, and less work; empty if the fastest was chosen.
  std::string whyNotFastest(const CutSizes& chosen) const;

 private:
  bool isAsFast(const SeenSize& size) const;
  bool isBetter(const SeenSize& a, const SeenSize& b) const;
  std::vector<const SeenSize*> inOrder() const;

  std::vector<SeenSize> seen_;
  size_t fastest_ = 0;
};

std::string sizesText(const CutSizes& sizes);

}  // namespace sluice
