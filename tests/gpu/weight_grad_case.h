// A random case for weight gradients in the kernel of chained products: dy = x * weight[e], and then
// dw[e] = or += a^T * dy over the rows of expert e.
//
// The experts' rows lie one after the other. Tasks of dw wait for all of dy of their expert. A last product,
// result = a * dw[e], waits for dw where that is bf16.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/abi/gpu/chain_plan.h"
#include "tests/gpu/chain_run.h"

namespace sluice::gpu {

// A matrix [experts, rows, columns] of fp32 or bf16, with NaN between rows and around them. A resource:
// operands point into it.
class HostGrad {
 public:
  HostGrad(int elementBytes, int experts, int rows, int columns, RowGaps gaps);

  float value(int expert, int row, int column) const;
  void set(int expert, int row, int column, float value);
  MappedMatrix operand(int boxRows) const;
  HostRange memory() const { return rangeOf(bytes_); }
  // Whether what lies between rows and around them is what it was.
  bool hasKeptGaps() const;

  const int elementBytes, experts, rows, columns;
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  size_t offset(int expert, int row, int column) const;

  const bool isMapped_;
  const size_t begin_, pitch_;  // bytes
  std::vector<std::byte> bytes_;
};

class WeightGradCase {
 public:
  struct Sizes {
    std::vector<int> rows;  // per expert
    int k, n;               // of dw
    int columns;            // of a tile
    GradForm form;
    RowGaps gaps[3] = {};  // of a, dy and dw
    // from tile to tile, if it is less than a tile has: what it has beyond is not stored
    int rowStep = 128, columnStep = 256;
    float alpha = 1;
    int divisor = 0;  // of the indices of gathered rows of a; 0: they are not gathered
  };

  explicit WeightGradCase(uint64_t seed);
  WeightGradCase(uint64_t seed, const Sizes& sizes);

  int tileColumns() const { return sizes_.columns; }
  // Runs the kernel on a backend with such tiles. Returns what is wrong: an error of the backend, a report,
  // or a wrong value; empty: nothing.
  std::string run(GpuBackend& backend, double timeoutSeconds);

  // Returns the gradient of the last run.
  const std::vector<std::byte>& grad() const { return grad_.bytes(); }

 private:
  static Sizes sizesOf(uint64_t seed);

  void addTasks(uint64_t seed);
  std::string firstWrongGrad() const;
  std::string firstWrongResult() const;

  Sizes sizes_;
  std::vector<int> begins_;  // of the experts' rows, and the end of the last
  HostMatrix a_, x_, weight_, dy_, result_;
  HostGrad grad_;
  std::vector<float> start_;    // of dw: experts, k, n
  std::vector<int32_t> index_;  // of rows of a; empty: none
  std::vector<MappedMatrix> matrices_;
  ChainRun tasks_;
};

}  // namespace sluice::gpu
