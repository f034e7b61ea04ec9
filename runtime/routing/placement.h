// Placement: experts with several places, so that the rows of an expert that many tokens choose are dealt to
// several ranks.
//
// The program's experts are places then. An expert's rows of one source go to its places in turn, beginning
// with another place at each source: each place gets as many to within one row per source. Every rank knows
// the places before rows are counted, so slots, events and the proof of a program are about its places.
//
// A value that is refilled each step; its vectors keep their capacity.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/base/mesh.h"

namespace sluice {

class Placement {
 public:
  // `expertAt` [places]: the expert at each place. Errors: a number outside 0 .. experts-1; an expert without
  // a place.
  Status set(std::span<const int32_t> expertAt, int32_t experts);

  // Replaces the experts of ids [T,K], each 0 .. experts-1 or -1, by places. `source` is the number of the
  // tokens' source among the sources of all ranks (Mesh::sourceOf).
  std::span<const int32_t> place(std::span<const int32_t> ids, int32_t source);

 private:
  std::vector<int32_t> first_;   // by expert: index of its first place; one element more than experts
  std::vector<int32_t> places_;  // by expert, then place
  std::vector<int32_t> next_;    // by expert: index of the place of its next row
  std::vector<int32_t> placed_;
};

// Chooses the places of experts for the rows that each is expected to get: spare places go to the experts
// with the most rows per place, then places, the largest first, to the group of ranks with the fewest rows.
// Returns `expertAt` [deal.experts]; `rows` [experts], at most deal.experts of them, at least 1.
std::vector<int32_t> choosePlaces(std::span<const double> rows, const ExpertDeal& deal);

}  // namespace sluice
