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

Expected<std::vector<RankRows>> routeRows(const TaskProgram& program, std::span<const Values* const> ids) {
  const int64_t topK = program.topK;
  if (Status same = checkGroups(program, ids); !same) return same.error();
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
