// ExpertDeal: which rank owns which experts, by their numbers alone.
//
// Value type. With experts = q ranks + r the first r ranks own q + 1 experts and the others q, in order; with
// fewer experts than ranks the last ranks own none.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice {

struct ExpertDeal {
  int32_t ranks = 1;
  int32_t experts = 1;

  // Expert `first(rank) + i` is local expert i of the rank; first(ranks) is the number of all.
  constexpr int32_t first(int32_t rank) const {
    return rank * (experts / ranks) + std::min(rank, experts % ranks);
  }
  constexpr int32_t of(int32_t rank) const { return experts / ranks + (rank < experts % ranks ? 1 : 0); }
  constexpr int32_t most() const { return of(0); }
  constexpr int32_t fewest() const { return of(ranks - 1); }
  constexpr bool differ() const { return experts % ranks != 0; }

  constexpr int32_t owner(int32_t expert) const {
    const int32_t larger = experts % ranks, inLarger = larger * most();
    return expert < inLarger ? expert / most() : larger + (expert - inLarger) / fewest();
  }
};

}  // namespace sluice
