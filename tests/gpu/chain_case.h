// A random case for the kernel of chained products: hidden = rows * up[e], result = hidden * down[e], bf16.
//
// Two experts have 1 to 200 rows each, which lie one after the other and are cut into slots of 128. A task of
// `down` waits for all tiles of `up` of its slot.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/gpu/chain_plan.h"
#include "tests/gpu/chain_run.h"

namespace sluice::gpu {

class ChainCase {
 public:
  explicit ChainCase(uint64_t seed);

  // Of one task of `up`, which will then signal nothing. Returns its event.
  uint32_t loseSignal() { return tasks_.loseSignal(); }

  // Runs the kernel. Returns what is wrong: what the model found, a report, or a wrong value; empty: nothing.
  std::string run(int blocks, uint64_t seed);

  // Of the last run.
  const std::vector<uint16_t>& hidden() const { return hidden_.elements(); }
  const std::vector<uint16_t>& result() const { return result_.elements(); }
  const std::vector<StuckReport>& reports() const { return tasks_.reports(); }

 private:
  struct Sizes {
    int rows[2];  // per expert
    int k, hidden, result;
    int columns;  // of a tile
    Major up, down;
    int spare[5];  // 16-byte parts between rows, by matrix
  };
  static Sizes sizesOf(uint64_t seed);
  ChainCase(uint64_t seed, const Sizes& sizes);

  void addTasks(uint64_t seed);
  std::string firstWrongValue(const HostMatrix& out, const HostMatrix& a, const HostMatrix& weight,
                              Major major, const char* name) const;

  Sizes sizes_;
  HostMatrix rows_, up_, hidden_, down_, result_;
  std::vector<Matrix> matrices_;
  ChainRun tasks_;
};

}  // namespace sluice::gpu
