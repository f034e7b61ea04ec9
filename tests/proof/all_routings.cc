#include "tests/proof/all_routings.h"

#include <bit>
#include <random>

namespace sluice {
namespace {

// All that the tokens of one rank can ask for: by rank, token and k.
std::vector<OracleRank> choicesOfRank(const TaskProgram& program, int maxTokens) {
  std::vector<uint32_t> sets;
  for (uint32_t set = 0; set < 1u << program.experts; ++set)
    if (std::popcount(set) <= program.topK) sets.push_back(set);
  std::vector<OracleRank> choices{OracleRank{}}, last = choices;
  for (int token = 0; token < maxTokens; ++token) {
    std::vector<OracleRank> longer;
    for (const OracleRank& shorter : last) {
      for (uint32_t set : sets) {
        OracleRank rank = shorter;
        ++rank.tokens;
        for (int expert = 0, k = 0; expert < program.experts; ++expert)
          if (set >> expert & 1) rank.pairs.push_back({token, k++, expert});
        longer.push_back(std::move(rank));
      }
    }
    choices.insert(choices.end(), longer.begin(), longer.end());
    last = std::move(longer);
  }
  return choices;
}

}  // namespace

int64_t forEachRouting(const TaskProgram& program, int maxTokens, int slotRows, uint64_t seed,
                       const std::function<bool(const std::vector<OracleRank>&)>& visit) {
  std::mt19937_64 random(seed);
  const std::vector<OracleRank> choices = choicesOfRank(program, maxTokens);
  // ranks that have the same tokens choose as one
  const Mesh& mesh = program.mesh;
  const int alike = mesh.tokens == TokenHolders::kSame ? mesh.tp : 1;
  std::vector<size_t> chosen(mesh.peers() / alike);
  for (int64_t count = 1;; ++count) {
    std::vector<OracleRank> ranks;
    for (size_t choice : chosen) ranks.insert(ranks.end(), alike, choices[choice]);
    cutRouting(program, slotRows, random, ranks);
    if (!visit(ranks)) return count;
    size_t rank = 0;
    while (rank < chosen.size() && ++chosen[rank] == choices.size()) chosen[rank++] = 0;
    if (rank == chosen.size()) return count;
  }
}

}  // namespace sluice
