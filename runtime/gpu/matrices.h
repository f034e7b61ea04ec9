// MatrixTable: the matrices of a step's records, each with the tensor map that its use needs.
#pragma once

#include <map>
#include <tuple>

#include "runtime/exec/step.h"
#include "runtime/gpu/gpu_backend.h"

namespace sluice {

class MatrixTable {
 public:
  MatrixTable(const Step& step, const GpuBackend& backend, std::vector<gpu::Matrix>& matrices)
      : step_(step), backend_(backend), matrices_(matrices) {}

  // A buffer, in boxes of so many rows and 128 bytes.
  uint16_t add(BufferId buffer, int boxRows);
  // Adds only these rows, in boxes of 64 rows: what follows them reads as 0.
  uint16_t add(BufferId buffer, const RowRange& rows);

  // Error: why a tensor map could not be made.
  const Status& status() const { return status_; }

 private:
  uint16_t addAs(BufferId buffer, int boxRows, int64_t begin, int64_t rows);

  const Step& step_;
  const GpuBackend& backend_;
  std::vector<gpu::Matrix>& matrices_;
  Status status_;
  // by buffer, rows of a box, first row and number of rows
  std::map<std::tuple<uint32_t, int, int64_t, int64_t>, uint16_t> known_;
};

}  // namespace sluice
