// Routing tables: the slots, pieces and positions that bind derives from one step's expert ids. The compiler
// derives the tables of the routing that it expects.
//
// A value type without pointers. It is refilled each step; its vectors keep their capacity, so that a step no
// larger than earlier ones allocates nothing. docs/SCHEDULE.md has the rules (slot lengths, slot order,
// sending order); every rank computes the same slots for every rank from the same counts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/base/mesh.h"
#include "runtime/program/program.h"

namespace sluice {

// The part of a program that routing depends on.
struct RoutingShape {
  Mesh mesh;
  int32_t experts = 1;  // in all
  int32_t topK = 1;
  int32_t slotRows = 128;
  int32_t groupSlots = 0;  // maximum slots per group; 0: slots are not grouped
  int32_t tokenSlot = 1;   // tokens per slot of tokens
  // The order of slots: slots of own rows come first, because these rows are there first; or last, so that
  // the others return meanwhile.
  bool ownLast = false;

  ExpertDeal deal() const { return {mesh, experts}; }
};

struct Slot {
  int32_t expert = 0;  // local to its rank
  int32_t row = 0;     // first row in the rank's expert-major storage
  int32_t rows = 0;    // 1 .. slotRows
};

// Neighbouring slots of one expert, in the order of their rows.
struct SlotGroup {
  int32_t expert = 0;  // local to its rank
  int32_t row = 0;     // first row in the rank's expert-major storage
  int32_t rows = 0;
  int32_t slots = 0;  // 1 .. groupSlots
};

// The rows of one slot that come from one source rank. `sends` lists the pieces of which this rank is the
// source, `returns` the pieces of its own slots.
struct Piece {
  int32_t peer = 0;    // sends: the rank that owns the slot; returns: the source rank
  int32_t slot = 0;    // number of the slot at its owner
  int32_t expert = 0;  // of the slot, local to its owner
  int32_t row = 0;     // first row at the owner
  int32_t pair = 0;    // sends: first pair at the source; returns: first of the rows that return there
  int32_t rows = 0;
  int32_t group = 0;  // number of the slot's group at its owner, where slots are grouped
};

struct RoutingTables {
  int32_t tokens = 0;
  int32_t tokenSlots = 0;
  int32_t pairs = 0;     // valid (token, k) pairs
  int32_t returned = 0;  // rows that return, P: the rows of shard j at j * pairs, in the order of pairs
  int32_t rows = 0;      // R

  // Pairs in the order sent: by expert, then token. pairOf[p] = t * topK + k; positionOf is its inverse,
  // -1 for masked ids.
  std::vector<int32_t> pairOf;
  std::vector<int32_t> positionOf;
  std::vector<int32_t> tokenOf;  // t of each; only of a rank that is alone, whose rows lie in this order

  std::vector<Slot> slots;  // of this rank, in expected order of arrival

  // The groups of this rank, in the order of their last slots, and the group of each slot; empty if slots are
  // not grouped.
  std::vector<SlotGroup> groups;
  std::vector<int32_t> groupOf;

  std::vector<Piece> sends;
  std::vector<Piece> returns;

  // By local expert.
  std::vector<int32_t> expertRow;  // first row; one element more than there are experts
  std::vector<int32_t> expertSlots;
  std::vector<int32_t> expertGroups;
  int32_t experts() const { return static_cast<int32_t>(expertSlots.size()); }

  // By rank: rows that it sends here, and rows that it returns here.
  std::vector<int32_t> rowsFrom;
  std::vector<int32_t> returnsFrom;

 private:
  friend class RoutingBuilder;
  std::vector<int64_t> orderScratch_;
  std::vector<int32_t> rowScratch_;   // by expert of the owner whose slots were ordered last
  std::vector<int32_t> groupIndex_;   // by slot in storage order: its group, in the same order
  std::vector<int32_t> groupNumber_;  // by group in storage order
  std::vector<int32_t> groupLeft_;
  std::vector<int32_t> nextPair_;  // by source
};

// Counts by expert of all ranks.
struct AllCounts {
  const int32_t* first = nullptr;  // the counts of rank 0
  size_t stride = 0;               // elements from the counts of one rank to the next rank's

  const int32_t* of(int32_t rank) const { return first + static_cast<size_t>(rank) * stride; }
};

// Errors: an id outside -1 .. experts-1, or twice in one row (token, k and id are named).
Status checkIds(std::span<const int32_t> expertIds, int32_t topK, int32_t experts);

// Sorts this rank's pairs by expert: fills tokens, pairs, pairOf, positionOf and `counts` [experts].
// checkIds() has found no error in the ids.
void countPairs(const RoutingShape& shape, std::span<const int32_t> expertIds, int32_t tokens,
                RoutingTables& tables, std::span<int32_t> counts);

// As countPairs(), if every token goes to every expert, topK of them.
void countAllPairs(const RoutingShape& shape, int32_t tokens, RoutingTables& tables,
                   std::span<int32_t> counts);

// The place of each pair among the experts of all ranks, [T,K]; -1: masked. countPairs() makes the same pairs
// of it. `tables` are complete.
std::vector<int32_t> listPlaces(const RoutingShape& shape, const RoutingTables& tables);

// R of a rank.
int64_t rowsAt(const RoutingShape& shape, int32_t rank, const AllCounts& counts);

// Fills the remaining tables from the counts of all ranks.
void buildTables(const RoutingShape& shape, int32_t rank, const AllCounts& counts, RoutingTables& tables);

// The same for all ranks, whose tables are in order: the slots of each owner are ordered once, not by each
// source.
void buildAllTables(const RoutingShape& shape, const AllCounts& counts, std::span<RoutingTables> tables);

// Fills only slots, groups, returns and the tables by local expert, from the counts of the rank's own
// experts; pairs of returns are numbered from the first that the source sends to the rank.
void buildReceived(const RoutingShape& shape, int32_t rank, const AllCounts& ofOwnExperts,
                   RoutingTables& tables);

// The order in which `rank` sends: own pieces, then expert by expert, inside an expert round-robin over the
// peers after this one.
void orderSends(const Mesh& mesh, int32_t rank, std::vector<Piece>& sends);

inline const Piece& findPiece(const RoutingTables& tables, SpaceKind space, int64_t slot) {
  return (space == SpaceKind::kSends ? tables.sends : tables.returns)[static_cast<size_t>(slot)];
}

// The number of live slots of a space, and of live counters of an event array, under a routing.
int64_t liveSlots(const RoutingTables& tables, SpaceKind space);
int64_t liveEvents(const RoutingTables& tables, EventSpace events);

// The counter of an event array that a task of `space` at `slot` waits for or signals.
int64_t eventIndex(const RoutingTables& tables, SpaceKind space, int64_t slot, EventSpace events);

}  // namespace sluice
