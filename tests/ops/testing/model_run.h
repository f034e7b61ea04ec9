// A task of the GPU kernel (ops/gpu/chain.h) on the model of the hardware, in memory of the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "runtime/abi/gpu/chain_plan.h"
#include "runtime/abi/kernels.h"
#include "tests/gpu/chain_run.h"
#include "tests/gpu/host_rows.h"

namespace sluice::ops {

// Each is run in one of the ways that should make no difference: with tiles of other sizes, by one or two
// blocks, with matrices where they are or where TMA can copy them.
class ModelRun {
 public:
  ModelRun();

  int tileColumns() const { return tileColumns_; }
  bool copiesMatrices() const { return copiesMatrices_; }

  // Memory that the task may access.
  void allow(const void* data, int64_t bytes);
  template <class T>
  void allow(const T* data, int64_t ld, int64_t rows, int64_t columns) {
    if (rows > 0 && columns > 0) allow(data, ((rows - 1) * ld + columns) * int64_t{sizeof(T)});
  }

  uint16_t add(const gpu::MappedMatrix& matrix);
  template <class Work>
  void add(const Work& work) {
    hasTasks_ = true;
    tasks_.add(0, work, {}, random());
  }

  // Throws std::runtime_error with what the model or the kernel found wrong.
  void run();

 private:
  struct Range {
    const std::byte* begin;
    const std::byte* end;
  };
  static std::mt19937& random();
  std::vector<gpu::HostRange> memory();

  const int tileColumns_, blocks_;
  const bool copiesMatrices_;
  std::vector<Range> ranges_;
  std::vector<gpu::MappedMatrix> matrices_;
  gpu::ChainRun tasks_;
  bool hasTasks_ = false;
};

// A matrix of a product where a run has it: where it is, or copied to where TMA takes it.
class PlacedMatrix {
 public:
  PlacedMatrix(ModelRun& run, const Operand& matrix, int32_t rows, int32_t columns);

  uint16_t add(int boxRows);
  // Copies a result back after the run.
  void copyBack(const Result& to) const;

 private:
  int64_t rowBytes() const { return columns_ * elementBytes_; }

  ModelRun& run_;
  const Operand matrix_;
  const int64_t rows_, columns_, elementBytes_;
  std::optional<gpu::HostRows> copy_;
};

}  // namespace sluice::ops
