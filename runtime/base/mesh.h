// Mesh: what the ranks of a program are to each other; and ExpertDeal: which of them own which experts, by
// their numbers alone. `peer` is a rank of the transport.
//
// Ranks are ep groups of tp, the ranks of a group beside each other. Experts are dealt over the groups; each
// rank of a group has a shard of all its experts, and gets all their rows.
//
// Value types. With experts = q ep + r the first r groups own q + 1 experts and the others q, in order; with
// fewer experts than groups the last ones own none.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/base/enums.h"

namespace sluice {

struct Mesh {
  int32_t ep = 1;  // groups
  int32_t tp = 1;  // ranks of a group
  TokenHolders tokens = TokenHolders::kOwn;

  constexpr int32_t peers() const { return ep * tp; }
  constexpr int32_t groupOf(int32_t peer) const { return peer / tp; }
  constexpr int32_t shardOf(int32_t peer) const { return peer % tp; }

  // Whether rows of tokens of `source` go to `owner`, if it owns their expert. Of ranks that have the same
  // tokens, each sends to the ranks of its own shard.
  constexpr bool sends(int32_t source, int32_t owner) const {
    return tokens == TokenHolders::kOwn || shardOf(source) == shardOf(owner);
  }
  // How many ranks send to a rank.
  constexpr int32_t sources() const { return tokens == TokenHolders::kOwn ? peers() : ep; }
  // The number of a rank's tokens among those: equal at ranks that have the same tokens.
  constexpr int32_t sourceOf(int32_t peer) const {
    return tokens == TokenHolders::kOwn ? peer : groupOf(peer);
  }

  // Results of the rows that came from `source` return to `count` ranks from `first` on: to it, or to all
  // that have its tokens.
  struct Peers {
    int32_t first, count;
  };
  constexpr Peers returnsTo(int32_t source) const {
    return tokens == TokenHolders::kOwn ? Peers{source, 1} : Peers{groupOf(source) * tp, tp};
  }

  friend constexpr bool operator==(const Mesh&, const Mesh&) = default;
};

struct ExpertDeal {
  Mesh mesh;
  int32_t experts = 1;

  // Expert `first(peer) + i` is local expert i of the peer.
  constexpr int32_t first(int32_t peer) const {
    const int32_t group = mesh.groupOf(peer);
    return group * (experts / mesh.ep) + std::min(group, experts % mesh.ep);
  }
  constexpr int32_t of(int32_t peer) const {
    return experts / mesh.ep + (mesh.groupOf(peer) < experts % mesh.ep ? 1 : 0);
  }
  constexpr int32_t most() const { return of(0); }
  constexpr int32_t fewest() const { return of(mesh.peers() - 1); }
  constexpr bool differ() const { return experts % mesh.ep != 0; }

  // The group that owns an expert.
  constexpr int32_t owner(int32_t expert) const {
    const int32_t larger = experts % mesh.ep, inLarger = larger * most();
    return expert < inLarger ? expert / most() : larger + (expert - inLarger) / fewest();
  }
};

}  // namespace sluice
