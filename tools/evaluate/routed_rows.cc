#include "tools/evaluate/routed_rows.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::tools {

Expected<std::vector<RankRows>> routeRows(const TaskProgram& program, std::span<const Values* const> ids) {
  const int64_t topK = program.topK;
  std::vector<std::vector<RoutedRow>> groups(static_cast<size_t>(program.experts));
  for (size_t rank = 0; rank < ids.size(); ++rank) {
    const std::vector<double>& all = ids[rank]->data;
    for (int64_t pair = 0; pair < std::ssize(all); ++pair) {
      const double id = all[static_cast<size_t>(pair)];
      if (id == -1) continue;
      if (!(id >= 0 && id < program.experts))
        return Error{fmt::format("rank {}, token {}: found expert id {}, expected -1 to {}", rank,
                                 pair / topK, id, program.experts - 1)};
      const auto first = all.begin() + pair / topK * topK;
      if (std::find(first, all.begin() + pair, id) != all.begin() + pair)
        return Error{fmt::format("rank {}, token {}: expert id {} is repeated", rank, pair / topK, id)};
      groups[static_cast<size_t>(id)].push_back({static_cast<int32_t>(rank), pair});
    }
  }
  std::vector<RankRows> ranks(ids.size());
  for (size_t expert = 0; expert < groups.size(); ++expert) {
    RankRows& owner = ranks[static_cast<size_t>(program.deal().owner(static_cast<int32_t>(expert)))];
    owner.expertBegin.push_back(std::ssize(owner.rows));
    owner.rows.insert(owner.rows.end(), groups[expert].begin(), groups[expert].end());
  }
  for (RankRows& rank : ranks) rank.expertBegin.push_back(std::ssize(rank.rows));
  return ranks;
}

}  // namespace sluice::tools
