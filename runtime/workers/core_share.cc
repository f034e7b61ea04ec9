#include <algorithm>
#include <utility>

#include "runtime/workers/cores.h"

namespace sluice {

CoreShare computeShare(Cores cores, const LocalPlace& place, int threads) {
  const bool shared = !cores.areOwn || !place.isProcess;
  const int ranks = shared ? place.ranks : 1;
  if (threads <= 0) threads = std::max(1, cores.count / ranks);
  if (static_cast<size_t>(threads) * static_cast<size_t>(ranks) > cores.units.size()) return {threads, {}};
  if (shared) std::ranges::rotate(cores.units, cores.units.begin() + place.rank * threads);
  return {threads, std::move(cores.units)};
}

}  // namespace sluice
