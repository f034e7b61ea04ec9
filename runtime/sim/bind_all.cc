#include "runtime/sim/bind_all.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/routing/placement.h"

namespace sluice {
namespace {

Error atRank(size_t rank, const std::string& message) {
  return Error{fmt::format("rank {}: {}", rank, message)};
}

// The counts of all ranks, [rank][expert].
class Counting {
 public:
  Counting(const Plan& plan, EntryId entry, size_t ranks)
      : program_(plan.program()),
        shape_(plan.routingShape()),
        entry_(program_.at(entry)),
        counts_(ranks * static_cast<size_t>(shape_.experts)) {}

  AllCounts all() const { return {counts_.data(), static_cast<size_t>(shape_.experts)}; }

  Status count(std::span<const RankRouting> ranks, size_t rank, RoutingTables& tables) {
    const RankRouting& own = ranks[rank];
    if (Status sane = checkSizes(own); !sane) return atRank(rank, sane.error().message);
    if (Status same = compareFirst(ranks, rank); !same) return same;
    const std::span<int32_t> counts = std::span(counts_).subspan(rank * static_cast<size_t>(shape_.experts),
                                                                 static_cast<size_t>(shape_.experts));
    const auto tokens = static_cast<int32_t>(own.tokens);
    if (!entry_.expertIds && !own.arePlaces) {
      countAllPairs(shape_, tokens, tables, counts);
      return {};
    }
    const int32_t experts = shape_.experts - (own.arePlaces ? 0 : program_.spare);
    if (Status legal = checkIds(own.expertIds, shape_.topK, experts); !legal)
      return atRank(rank, legal.error().message);
    std::span<const int32_t> ids = own.expertIds;
    if (!own.placement.empty()) {
      if (Status legal = placement_.set(own.placement, experts); !legal)
        return atRank(
            rank, fmt::format("tensor '{}': {}", program_.at(entry_.placement).name, legal.error().message));
      ids = placement_.place(ids, shape_.mesh.sourceOf(static_cast<int32_t>(rank)));
    }
    countPairs(shape_, ids, tokens, tables, counts);
    return {};
  }

 private:
  Status checkSizes(const RankRouting& own) const {
    if (own.tokens < 0 || own.tokens > program_.maxTokens)
      return Error{fmt::format("found {} tokens, expected 0 to {}", own.tokens, program_.maxTokens)};
    const size_t ids = entry_.expertIds || own.arePlaces
                           ? static_cast<size_t>(own.tokens) * static_cast<size_t>(shape_.topK)
                           : 0;
    if (own.expertIds.size() != ids)
      return Error{fmt::format("found {} expert ids, expected {}", own.expertIds.size(), ids)};
    const size_t places = entry_.placement && !own.arePlaces ? static_cast<size_t>(shape_.experts) : 0;
    if (own.placement.size() != places)
      return Error{fmt::format("found {} places, expected {}", own.placement.size(), places)};
    return {};
  }

  Status compareFirst(std::span<const RankRouting> ranks, size_t rank) const {
    if (!std::ranges::equal(ranks[rank].placement, ranks[0].placement))
      return atRank(rank, "found another placement of experts than at rank 0, expected the same");
    const Mesh& mesh = program_.mesh;
    if (mesh.tokens == TokenHolders::kOwn) return {};
    const size_t first = rank - static_cast<size_t>(mesh.shardOf(static_cast<int32_t>(rank)));
    if (ranks[rank].tokens != ranks[first].tokens ||
        !std::ranges::equal(ranks[rank].expertIds, ranks[first].expertIds))
      return atRank(rank,
                    fmt::format("found other tokens than at rank {} of its group, expected the same", first));
    return {};
  }

  const TaskProgram& program_;
  const RoutingShape& shape_;
  const Entry& entry_;
  std::vector<int32_t> counts_;
  Placement placement_;
};

}  // namespace

Expected<BoundRouting> bindAll(const Plan& plan, EntryId entry, std::span<const RankRouting> ranks) {
  const auto peers = static_cast<size_t>(plan.program().mesh.peers());
  if (ranks.size() != peers)
    return Error{fmt::format("found the routing of {} ranks, expected {}", ranks.size(), peers)};
  Counting counting(plan, entry, peers);
  AllTables counted(peers);
  int64_t pairs = 0;
  for (size_t rank = 0; rank < peers; ++rank) {
    if (Status done = counting.count(ranks, rank, counted[rank]); !done) return done.error();
    pairs += counted[rank].pairs;
  }
  if (pairs > std::numeric_limits<int32_t>::max())
    return Error{fmt::format("the ranks have {} (token, k) pairs in all, expected at most {}", pairs,
                             std::numeric_limits<int32_t>::max())};
  BoundRouting bound;
  bound.tables_.resize(plan.program().entries.size());
  for (uint32_t e = 0; e < bound.tables_.size(); ++e) {
    const EntryPlan& user = plan.at(EntryId{e});
    if (user.routing != entry || user.tables != EntryId{e}) continue;
    RoutingShape shape = plan.routingShape();
    shape.ownLast = user.ownLast;
    bound.tables_[e] = counted;
    buildAllTables(shape, counting.all(), bound.tables_[e]);
  }
  return bound;
}

}  // namespace sluice
