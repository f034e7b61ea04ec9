// A random case for the kernel of chained products: hidden = rows * up[e], result = hidden * down[e], bf16.
//
// Two experts have 1 to 200 rows each, which lie one after the other and are cut into slots of 128. A task of
// `down` waits for all tiles of `up` of its slot.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/gpu/chain_plan.h"

namespace sluice::gpu {

// A matrix [outers, rows, columns] of bf16 whose rows are a multiple of 16 bytes apart, with NaN between them
// and after the last. A resource: maps point into it.
class HostMatrix {
 public:
  HostMatrix(int outers, int rows, int columns, int spare);

  uint16_t& at(int outer, int row, int column);
  double value(int outer, int row, int column) const;
  Matrix operand(int boxRows);
  void registerAll() const;
  // Whether what lies between rows and after the last one is what it was.
  bool hasKeptGaps() const;

  const int outers, rows, columns;
  const std::vector<uint16_t>& elements() const { return elements_; }

 private:
  int pitch_;  // elements
  std::vector<uint16_t> elements_;
};

class ChainCase {
 public:
  explicit ChainCase(uint64_t seed);

  // Of one task of `up`, which will then signal nothing. Returns its event.
  uint32_t loseSignal();

  // Runs the kernel. Returns what is wrong: what the model found, a report, or a wrong value; empty: nothing.
  std::string run(int blocks, uint64_t seed);

  // Of the last run.
  const std::vector<uint16_t>& hidden() const { return hidden_.elements(); }
  const std::vector<uint16_t>& result() const { return result_.elements(); }
  const std::vector<StuckReport>& reports() const { return reports_; }

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
  std::string describeReports() const;
  std::string firstWrongValue(const HostMatrix& out, const HostMatrix& a, const HostMatrix& weight,
                              Major major, const char* name) const;

  Sizes sizes_;
  HostMatrix rows_, up_, hidden_, down_, result_;
  std::vector<Matrix> matrices_;
  std::vector<ProductTask> tasks_;
  std::vector<uint32_t> lists_, heads_;
  std::vector<uint64_t> counters_, starts_;
  std::vector<StuckReport> reports_;
  uint64_t abort_ = 0;
};

}  // namespace sluice::gpu
