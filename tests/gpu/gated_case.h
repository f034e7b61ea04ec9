// A random case for products with an activation in the kernel of chained products: act = f(alpha * rows *
// gate_up[e] + bias[e]), and gate_up's gradient, that of the rows' weights and weighted act from grad *
// down[e]. Rows and slots are those of chain_case.h.
//
// Elements are multiples of 1/16 and alpha is 1 or 1/2, of which products and sums are exact in fp32. So it
// is known which way each matrix that is rounded to bf16 is rounded, and what follows is compared within the
// last bit of bf16.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/abi/gpu/chain_plan.h"
#include "runtime/base/activation_info.h"
#include "tests/gpu/chain_run.h"

namespace sluice::gpu {

// What a matrix should be, without gaps, and how far it may be from that: `relative` to it, and a margin.
struct ExpectedMatrix {
  const char* name;
  double relative;  // 0: already rounded
  std::vector<double> values, margins;
};

class GatedCase {
 public:
  explicit GatedCase(uint64_t seed);

  int tileColumns() const { return sizes_.columns; }
  // Runs the kernel on a backend with such tiles. Returns what is wrong: an error of the backend, a report,
  // or a wrong value; empty: nothing.
  std::string run(GpuBackend& backend, double timeoutSeconds);

  // All elements of all results of the last run.
  std::vector<uint16_t> results() const;

 private:
  struct Sizes {
    int rows[2];  // per expert
    int k, inter, gradK;
    int columns;  // of a tile
    int step;     // from tile to tile: what a tile has beyond is not stored
    Major up, down;
    bool storesGateUp;  // and there is a gradient
    bool storesWeightedAct;
    ActivationKind activation;
    float limit;
    float alpha;
    bool hasBias, hasRowWeights;
    RowGaps gaps[8];  // by matrix
  };
  static Sizes sizesOf(uint64_t seed);
  GatedCase(uint64_t seed, const Sizes& sizes);

  void addTasks(uint64_t seed);
  int gateUpColumns() const { return findInfo(sizes_.activation).inputs * sizes_.inter; }
  std::string firstWrongValue() const;
  ExpectedMatrix expectedWeightedAct() const;
  std::string firstWrongRowWeightGrad(const std::vector<double>& expected,
                                      const std::vector<double>& sizes) const;

  Sizes sizes_;
  HostMatrix rows_, up_, gateUp_, act_, grad_, down_, gateUpGrad_, weightedAct_;
  std::vector<MappedMatrix> matrices_;
  std::vector<uint16_t> bias_;  // per expert and column of gate_up
  std::vector<float> rowWeight_, rowWeightGrad_;
  ChainRun tasks_;
};

}  // namespace sluice::gpu
