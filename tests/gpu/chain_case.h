// A random case for the kernel of chained products: hidden = rows * up[e], result = hidden * down[e], bf16.
//
// Two experts have 1 to 200 rows each, which lie one after the other and are cut into slots of 128. A task of
// `down` waits for all tiles of `up` of its slot. Rows of `up` may be gathered from tokens, or be none (0).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/abi/gpu/chain_plan.h"
#include "tests/gpu/chain_run.h"

namespace sluice::gpu {

class ChainCase {
 public:
  explicit ChainCase(uint64_t seed);

  // Makes one task of `up` signal nothing. Returns its event.
  uint32_t loseSignal() { return tasks_.loseSignal(); }

  int tileColumns() const { return sizes_.columns; }
  // Runs the kernel on a backend with such tiles. Returns what is wrong: an error of the backend, a report,
  // or a wrong value; empty: nothing.
  std::string run(GpuBackend& backend, double timeoutSeconds);

  // These are from the last run.
  const std::vector<uint16_t>& hidden() const { return hidden_.elements(); }
  const std::vector<uint16_t>& result() const { return result_.elements(); }
  const std::vector<StuckReport>& reports() const { return tasks_.reports(); }

 private:
  struct Sizes {
    int rows[2];  // per expert
    int k, hidden, result;
    int columns;  // of a tile
    int step;     // from tile to tile: what a tile has beyond is not stored
    Major up, down;
    RowGaps gaps[5];  // by matrix
    float alpha;      // of `down`
    bool hasBias;     // likewise
    int divisor;      // of the indices of gathered rows; 0: rows are not gathered
  };
  static Sizes sizesOf(uint64_t seed);
  ChainCase(uint64_t seed, const Sizes& sizes);

  void addTasks(uint64_t seed);
  // What a value of a product is without rounding, and how far from it one may be found. `row` of a; below 0:
  // all 0.
  struct Expected {
    double value, margin;
  };
  static Expected productAt(const HostMatrix& a, int row, const HostMatrix& weight, Major major, int expert,
                            int column);
  std::string firstWrongHidden() const;
  std::string firstWrongResult() const;

  Sizes sizes_;
  HostMatrix rows_, hidden_, result_, up_, down_;
  std::vector<int32_t> index_;
  std::vector<uint16_t> bias_;  // per expert and column of result; empty: none
  std::vector<MappedMatrix> matrices_;
  ChainRun tasks_;
};

}  // namespace sluice::gpu
