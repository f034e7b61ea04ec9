// Mesh: what the ranks of a program are to each other; and ExpertDeal: which of them own which experts, by
// their numbers alone. `peer` is a rank of the transport.
//
// Value types. With experts = q ep + r the first r owners own q + 1 experts and the others q, in order; with
// fewer experts than owners the last ones own none.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice {

struct Mesh {
  int32_t ep = 1;  // owners: experts are dealt over so many

  constexpr int32_t peers() const { return ep; }  // send to each other, each with tokens of its own
  constexpr int32_t ownerOf(int32_t peer) const { return peer; }  // which of the owners a peer is
  friend constexpr bool operator==(const Mesh&, const Mesh&) = default;
};

struct ExpertDeal {
  Mesh mesh;
  int32_t experts = 1;

  // Expert `first(peer) + i` is local expert i of the peer; first(peers) is the number of all.
  constexpr int32_t first(int32_t peer) const {
    const int32_t owner = mesh.ownerOf(peer);
    return owner * (experts / mesh.ep) + std::min(owner, experts % mesh.ep);
  }
  constexpr int32_t of(int32_t peer) const {
    return experts / mesh.ep + (mesh.ownerOf(peer) < experts % mesh.ep ? 1 : 0);
  }
  constexpr int32_t most() const { return of(0); }
  constexpr int32_t fewest() const { return of(mesh.peers() - 1); }
  constexpr bool differ() const { return experts % mesh.ep != 0; }

  constexpr int32_t owner(int32_t expert) const {
    const int32_t larger = experts % mesh.ep, inLarger = larger * most();
    return expert < inLarger ? expert / most() : larger + (expert - inLarger) / fewest();
  }
};

}  // namespace sluice
