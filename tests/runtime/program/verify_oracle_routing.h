// Random routings and the slot tables that follow from them, for the oracle of verify().
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "runtime/program/program.h"

namespace sluice {

struct OracleSlot {
  int expert;  // of this rank
  int row;     // the first
  int rows;
  int group = 0;  // where slots are grouped
};

struct OracleGroup {
  int expert;
  int row;  // the first
  int rows;
  int slots;
};

// Rows of one slot of rank `to` that come from rank `from`, or return there.
struct OraclePiece {
  int from, to;
  int slot;  // of rank `to`
  int expert;
  int row;   // the first, at `to`
  int pair;  // the first, at `from`: of its pairs, or of the rows that return to it
  int rows;
  int group;  // of the slot
};

struct OraclePair {
  int token, k, expert;  // expert: of all
};

struct OracleRank {
  int tokens = 0;
  int rows = 0;
  int returned = 0;               // rows that return: by shard of the rank they come from, then as pairs
  std::vector<OraclePair> pairs;  // in sending order: by expert, then by token
  std::vector<OracleSlot> slots;
  std::vector<OracleGroup> groups;  // of a program that has the space
  std::vector<OraclePiece> sends, returns;
  std::vector<OracleSlot> experts;  // all rows of each
};

// Ranks with few or no tokens, ids of -1, experts without rows and hot ones all occur. Slots, groups and
// pieces are numbered at random: no property may depend on the order of arrival.
std::vector<OracleRank> randomRouting(const TaskProgram& program, std::mt19937_64& random);

// Slots, pieces and experts of ranks of which tokens and pairs are given, by token; slots have at most
// `slotRows` rows, be they a multiple of 16 or fewer.
void cutRouting(const TaskProgram& program, int slotRows, std::mt19937_64& random,
                std::vector<OracleRank>& ranks);

}  // namespace sluice
