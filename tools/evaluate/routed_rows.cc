#include "tools/evaluate/routed_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace sluice::tools {
namespace {

bool hasSameTokens(const TaskProgram& program) { return program.mesh.tokens == TokenHolders::kSame; }

// Whether ids are the same at the ranks of a group that has the same tokens.
Status checkGroups(const TaskProgram& program, std::span<const Values* const> ids) {
  if (!hasSameTokens(program)) return {};
  for (size_t rank = 0; rank < ids.size(); ++rank)
    if (const size_t first = rank - rank % static_cast<size_t>(program.mesh.tp); *ids[rank] != *ids[first])
      return Error{
          fmt::format("rank {}: found other expert ids than at rank {}, expected the same tokens at "
                      "the ranks of a group",
                      rank, first)};
  return {};
}

// The places of each expert; without a placement, its own.
Expected<std::vector<std::vector<size_t>>> listPlaces(const TaskProgram& program,
                                                      std::span<const Values* const> placements) {
  std::vector<std::vector<size_t>> places(static_cast<size_t>(program.experts - program.spare));
  for (size_t rank = 1; rank < placements.size(); ++rank)
    if (*placements[rank] != *placements[0])
      return Error{fmt::format("rank {}: found another placement than at rank 0", rank)};
  for (size_t place = 0; place < static_cast<size_t>(program.experts); ++place) {
    const double expert = placements.empty() ? static_cast<double>(place) : placements[0]->data[place];
    if (!(expert >= 0 && expert < std::ssize(places)))
      return Error{
          fmt::format("place {}: found expert {}, expected 0 to {}", place, expert, std::ssize(places) - 1)};
    places[static_cast<size_t>(expert)].push_back(place);
  }
  for (size_t expert = 0; expert < places.size(); ++expert)
    if (places[expert].empty()) return Error{fmt::format("expert {} has no place", expert)};
  return places;
}

}  // namespace

bool returnsTo(const TaskProgram& program, int32_t source, size_t rank) {
  const auto to = static_cast<int32_t>(rank);
  return hasSameTokens(program) ? source / program.mesh.tp == to / program.mesh.tp : source == to;
}

Values everyExpert(const TaskProgram& program, int64_t tokens) {
  Values ids{{tokens, program.topK}, {}};
  for (int64_t pair = 0; pair < tokens * program.topK; ++pair)
    ids.data.push_back(static_cast<double>(pair % program.topK));
  return ids;
}

Expected<std::vector<RankRows>> routeRows(const TaskProgram& program, std::span<const Values* const> ids,
                                          std::span<const Values* const> placements) {
  const int64_t topK = program.topK;
  const auto places = listPlaces(program, placements);
  if (!places) return places.error();
  if (Status same = checkGroups(program, ids); !same) return same.error();
  std::vector<std::vector<RoutedRow>> groups(static_cast<size_t>(program.experts));
  for (size_t rank = 0; rank < ids.size(); ++rank) {
    const std::vector<double>& all = ids[rank]->data;
    // an expert's rows go to its places in turn, beginning with another place at each source of tokens
    std::vector<size_t> next(places->size(),
                             hasSameTokens(program) ? rank / static_cast<size_t>(program.mesh.tp) : rank);
    for (int64_t pair = 0; pair < std::ssize(all); ++pair) {
      const double id = all[static_cast<size_t>(pair)];
      if (id == -1) continue;
      if (!(id >= 0 && id < std::ssize(*places)))
        return Error{fmt::format("rank {}, token {}: found expert id {}, expected -1 to {}", rank,
                                 pair / topK, id, std::ssize(*places) - 1)};
      const auto first = all.begin() + pair / topK * topK;
      if (std::find(first, all.begin() + pair, id) != all.begin() + pair)
        return Error{fmt::format("rank {}, token {}: expert id {} is repeated", rank, pair / topK, id)};
      const std::vector<size_t>& own = (*places)[static_cast<size_t>(id)];
      const size_t place = own[next[static_cast<size_t>(id)]++ % own.size()];
      groups[place].push_back({static_cast<int32_t>(rank), pair});
    }
  }
  std::vector<RankRows> ranks(ids.size());
  const int32_t tp = program.mesh.tp;
  for (size_t expert = 0; expert < groups.size(); ++expert) {
    const int32_t first = program.deal().owner(static_cast<int32_t>(expert)) * tp;
    for (int32_t shard = 0; shard < tp; ++shard) {
      RankRows& owner = ranks[static_cast<size_t>(first + shard)];
      owner.expertBegin.push_back(std::ssize(owner.rows));
      std::copy_if(groups[expert].begin(), groups[expert].end(), std::back_inserter(owner.rows),
                   [&](const RoutedRow& row) { return !hasSameTokens(program) || row.source % tp == shard; });
    }
  }
  for (RankRows& rank : ranks) rank.expertBegin.push_back(std::ssize(rank.rows));
  return ranks;
}

}  // namespace sluice::tools
