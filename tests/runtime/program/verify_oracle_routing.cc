#include "tests/runtime/program/verify_oracle_routing.h"

#include <algorithm>
#include <numeric>

namespace sluice {
namespace {

int pick(std::mt19937_64& random, int count) {
  return static_cast<int>(random() % static_cast<uint64_t>(count));
}

void choosePairs(const TaskProgram& program, std::mt19937_64& random, OracleRank& rank) {
  const int most = std::min(program.maxTokens, 40);
  rank.tokens = pick(random, 4) == 0 ? pick(random, 2) : pick(random, most + 1);
  const int favoured = pick(random, program.experts);
  const int skew = pick(random, 3);
  for (int token = 0; token < rank.tokens; ++token) {
    std::vector<int> experts(program.experts);
    std::iota(experts.begin(), experts.end(), 0);
    std::shuffle(experts.begin(), experts.end(), random);
    if (skew > 0) std::swap(*std::find(experts.begin(), experts.end(), favoured), experts.front());
    for (int k = 0; k < program.topK; ++k)
      if (pick(random, 5) > 0 && (skew < 2 || k == 0)) rank.pairs.push_back({token, k, experts[k]});
  }
}

int slotSize(const TaskProgram& program, SpaceKind kind, int otherwise) {
  for (const Space& space : program.spaces)
    if (space.kind == kind) return space.slotSize;
  return otherwise;
}

// Most slots of a group; 0 where the program has no groups.
int groupSlots(const TaskProgram& program) {
  return slotSize(program, SpaceKind::kGroups, 0) / std::max(1, slotSize(program, SpaceKind::kRows, 16));
}

// Groups the slots of one expert, the last of the list.
void groupSlotsOf(OracleRank& rank, int slots, int limit) {
  const int groups = (slots + limit - 1) / limit;
  const size_t first = rank.slots.size() - slots;
  for (int group = 0; group < groups; ++group) {
    const auto number = static_cast<int>(rank.groups.size());
    const size_t begin = first + group * slots / groups, end = first + (group + 1) * slots / groups;
    rank.groups.push_back(
        {rank.slots[begin].expert, rank.slots[begin].row, 0, static_cast<int>(end - begin)});
    for (size_t slot = begin; slot < end; ++slot) {
      rank.slots[slot].group = number;
      rank.groups.back().rows += rank.slots[slot].rows;
    }
  }
}

bool isSame(const Mesh& mesh) { return mesh.tokens == TokenHolders::kSame; }

// Gives the groups other numbers.
void shuffleGroups(OracleRank& rank, std::mt19937_64& random) {
  std::vector<size_t> from(rank.groups.size());
  std::iota(from.begin(), from.end(), size_t{0});
  std::shuffle(from.begin(), from.end(), random);
  std::vector<OracleGroup> groups;
  std::vector<int> number(from.size());
  for (size_t to = 0; to < from.size(); ++to) {
    groups.push_back(rank.groups[from[to]]);
    number[from[to]] = static_cast<int>(to);
  }
  rank.groups = groups;
  for (OracleSlot& slot : rank.slots) slot.group = number[slot.group];
}

// The pieces of slot `slot` of rank `to`, whose expert's rows from rank r are counts[r], from r's pair
// firstPair[r] on.
void cutPieces(const Mesh& mesh, std::vector<OracleRank>& ranks, int to, int slot,
               const std::vector<int>& counts, const std::vector<int>& firstPair) {
  const OracleSlot& s = ranks[to].slots[slot];
  int row = ranks[to].experts[s.expert].row;
  for (int from = 0; from < static_cast<int>(ranks.size()); ++from) {
    const int begin = std::max(row, s.row), end = std::min(row + counts[from], s.row + s.rows);
    if (begin < end) {
      const OraclePiece piece{from,        to,     slot, s.expert, begin, firstPair[from] + begin - row,
                              end - begin, s.group};
      ranks[from].sends.push_back(piece);
      for (int holder = 0; holder < static_cast<int>(ranks.size()); ++holder) {
        if (holder != from && !(isSame(mesh) && holder / mesh.tp == from / mesh.tp)) continue;
        OraclePiece back = piece;
        back.from = holder;
        back.pair += to % mesh.tp * static_cast<int>(ranks[from].pairs.size());
        ranks[to].returns.push_back(back);
      }
    }
    row += counts[from];
  }
}

void cutRank(const TaskProgram& program, int limit, std::mt19937_64& random, std::vector<OracleRank>& ranks,
             int to) {
  // the first `program.experts % program.mesh.ep` groups own one expert more
  const Mesh& mesh = program.mesh;
  const auto countExperts = [&](int group) {
    return program.experts / mesh.ep + (group < program.experts % mesh.ep ? 1 : 0);
  };
  const int local = countExperts(to / mesh.tp);
  int first = 0;
  for (int group = 0; group < to / mesh.tp; ++group) first += countExperts(group);
  const int unit = std::min(limit, 16), group = groupSlots(program);
  std::vector<std::vector<int>> counts(local), firstPair(local);
  for (int e = 0; e < local; ++e) {
    const int begin = ranks[to].rows;
    for (const OracleRank& rank : ranks) {
      const auto is = [&](int below) {
        return std::count_if(rank.pairs.begin(), rank.pairs.end(),
                             [&](const OraclePair& pair) { return pair.expert < first + e + below; });
      };
      const bool sends = !isSame(mesh) || (&rank - ranks.data()) % mesh.tp == to % mesh.tp;
      firstPair[e].push_back(static_cast<int>(is(0)));
      counts[e].push_back(sends ? static_cast<int>(is(1) - is(0)) : 0);
      ranks[to].rows += counts[e].back();
    }
    const int rows = ranks[to].rows - begin;
    ranks[to].experts.push_back({e, begin, rows});
    if (rows == 0) continue;
    const int slots = (rows + limit - 1) / limit;
    const int length = ((rows + slots - 1) / slots + unit - 1) / unit * unit;
    for (int i = 0; i < slots; ++i)
      ranks[to].slots.push_back({e, begin + i * length, std::min(length, rows - i * length)});
    if (group > 0) groupSlotsOf(ranks[to], (rows + length - 1) / length, group);
  }
  if (group > 0) shuffleGroups(ranks[to], random);
  std::shuffle(ranks[to].slots.begin(), ranks[to].slots.end(), random);
  for (int slot = 0; slot < static_cast<int>(ranks[to].slots.size()); ++slot) {
    const int e = ranks[to].slots[slot].expert;
    cutPieces(mesh, ranks, to, slot, counts[e], firstPair[e]);
  }
}

}  // namespace

std::vector<OracleRank> randomRouting(const TaskProgram& program, std::mt19937_64& random) {
  std::vector<OracleRank> ranks(program.mesh.peers());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (isSame(program.mesh) && rank % program.mesh.tp != 0)
      ranks[rank] = ranks[rank - 1];
    else
      choosePairs(program, random, ranks[rank]);
  }
  cutRouting(program, slotSize(program, SpaceKind::kRows, 16), random, ranks);
  return ranks;
}

void cutRouting(const TaskProgram& program, int slotRows, std::mt19937_64& random,
                std::vector<OracleRank>& ranks) {
  for (OracleRank& rank : ranks)
    std::stable_sort(rank.pairs.begin(), rank.pairs.end(),
                     [](const OraclePair& a, const OraclePair& b) { return a.expert < b.expert; });
  for (OracleRank& rank : ranks) rank.returned = static_cast<int>(rank.pairs.size()) * program.mesh.tp;
  for (int to = 0; to < program.mesh.peers(); ++to) cutRank(program, slotRows, random, ranks, to);
  for (OracleRank& rank : ranks) {
    std::shuffle(rank.sends.begin(), rank.sends.end(), random);
    std::shuffle(rank.returns.begin(), rank.returns.end(), random);
  }
}

}  // namespace sluice
