#include "runtime/routing/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace sluice {

Status Placement::set(std::span<const int32_t> expertAt, int32_t experts) {
  first_.assign(static_cast<size_t>(experts) + 1, 0);
  for (size_t place = 0; place < expertAt.size(); ++place) {
    const int32_t expert = expertAt[place];
    if (expert < 0 || expert >= experts)
      return Error{fmt::format("place {} has expert {}, expected 0 to {}", place, expert, experts - 1)};
    ++first_[static_cast<size_t>(expert) + 1];
  }
  const auto empty = std::find(first_.begin() + 1, first_.end(), 0);
  if (empty != first_.end())
    return Error{fmt::format("expert {} has no place, expected at least one of {}",
                             empty - first_.begin() - 1, expertAt.size())};
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  next_.assign(first_.begin(), first_.end() - 1);
  places_.resize(expertAt.size());
  for (size_t place = 0; place < expertAt.size(); ++place)
    places_[static_cast<size_t>(next_[static_cast<size_t>(expertAt[place])]++)] = static_cast<int32_t>(place);
  return {};
}

std::span<const int32_t> Placement::place(std::span<const int32_t> ids, int32_t source) {
  for (size_t expert = 0; expert < next_.size(); ++expert)
    next_[expert] = first_[expert] + source % (first_[expert + 1] - first_[expert]);
  placed_.resize(ids.size());
  std::transform(ids.begin(), ids.end(), placed_.begin(), [&](int32_t id) {
    if (id < 0) return id;
    const auto expert = static_cast<size_t>(id);
    const int32_t place = places_[static_cast<size_t>(next_[expert])];
    if (++next_[expert] == first_[expert + 1]) next_[expert] = first_[expert];
    return place;
  });
  return placed_;
}

std::vector<int32_t> choosePlaces(std::span<const double> rows, const ExpertDeal& deal) {
  struct Expert {
    int32_t id, places;
    double rows;
    double perPlace() const { return rows / places; }
  };
  const auto fewer = [](const Expert& a, const Expert& b) {
    return a.perPlace() != b.perPlace() ? a.perPlace() < b.perPlace() : a.id > b.id;
  };
  std::vector<Expert> experts;
  for (size_t e = 0; e < rows.size(); ++e) experts.push_back({static_cast<int32_t>(e), 1, rows[e]});
  std::make_heap(experts.begin(), experts.end(), fewer);
  for (auto spare = deal.experts - static_cast<int32_t>(rows.size()); spare > 0; --spare) {
    std::pop_heap(experts.begin(), experts.end(), fewer);
    ++experts.back().places;
    std::push_heap(experts.begin(), experts.end(), fewer);
  }
  std::sort(experts.rbegin(), experts.rend(), fewer);

  struct Group {
    double rows = 0;
    int32_t used = 0;
  };
  std::vector<Group> groups(static_cast<size_t>(deal.mesh.ep));
  std::vector<int32_t> expertAt(static_cast<size_t>(deal.experts));
  for (const Expert& expert : experts)
    for (int32_t i = 0; i < expert.places; ++i) {
      const auto cost = [&](size_t g) {
        const Group& group = groups[g];
        const bool isFull = group.used == deal.of(static_cast<int32_t>(g) * deal.mesh.tp);
        return std::pair(isFull, group.rows);
      };
      size_t best = 0;
      for (size_t g = 1; g < groups.size(); ++g)
        if (cost(g) < cost(best)) best = g;
      const int32_t first = deal.first(static_cast<int32_t>(best) * deal.mesh.tp);
      expertAt[static_cast<size_t>(first + groups[best].used++)] = expert.id;
      groups[best].rows += expert.perPlace();
    }
  return expertAt;
}

}  // namespace sluice
