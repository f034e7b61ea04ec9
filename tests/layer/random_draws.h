// RandomDraws: what tests of random layers draw alike: how a program is cut, and how many tokens ranks have.
//
// Resource type: each draw follows from the seed and the draws before it, the same on every machine.
#pragma once

#include <cstdint>
#include <random>

#include "compiler/api/compile.h"
#include "tools/moe/inputs.h"

namespace sluice {

class RandomDraws {
 public:
  explicit RandomDraws(uint32_t seed) : random_(seed) {}
  RandomDraws(const RandomDraws&) = delete;
  RandomDraws& operator=(const RandomDraws&) = delete;

  int pick(int low, int high) { return low + static_cast<int>(random_() % (high - low + 1)); }
  uint64_t seed() { return random_(); }

  // The options with numbers of cores and of rows and columns of a task, some of which the compiler chooses.
  CompileOptions cut(CompileOptions options) {
    options.cores = pick(0, 4);
    options.slotRows = 16 * pick(0, 3);
    options.tile = 16 * pick(0, 3);
    return options;
  }

  // At most `most` at each rank, none at a quarter of them; the ranks of a group of `same` have the same
  // ones.
  tools::TokensSpec tokens(int ranks, int most, int same) {
    tools::TokensSpec tokens{.most = most};
    for (int rank = 0; rank < ranks; ++rank)
      tokens.counts.push_back(rank % same != 0 ? tokens.counts.back() : pick(0, 3) == 0 ? 0 : pick(1, most));
    return tokens;
  }

 private:
  std::mt19937 random_;
};

}  // namespace sluice
