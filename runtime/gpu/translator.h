// How tasks of a program become records of the persistent kernel of ops/gpu: which ones it can run, and what
// the records of a task do, in the lists of StepTables.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "runtime/abi/gpu/row_plan.h"
#include "runtime/exec/step.h"
#include "runtime/gpu/gpu_backend.h"
#include "runtime/gpu/staging.h"
#include "runtime/gpu/step_tables.h"
#include "runtime/program/op_table.h"

namespace sluice {

// The kernel of an op that works on rows by themselves; none if there is none.
std::optional<gpu::RowOp> findRowOp(OpKind op);

// Error: names a family that it cannot run, and why.
Status checkForGpu(const Plan& plan);

// The matrices of a step's records, each with the tensor map that its use needs.
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

// Makes the records of tasks.
class Translator {
 public:
  Translator(const Step& step, const Staging& staged, GpuBackend& backend, StepTables& tables)
      : step_(step),
        staged_(staged),
        backend_(backend),
        tables_(tables),
        columns_(backend.tileColumns()),
        matrices_(step, backend, tables.matrices) {}

  // Adds the records of the task, at least one, without waits and signals.
  void add(const Task& task);

  // Error: why the records are of no use.
  const Status& status() const { return matrices_.status(); }

 private:
  void addProducts(const Family& family, const Task& task);
  void addWeightGrads(const Family& family, const Task& task);
  void addSends(const Task& task);
  void addReturns(const Task& task);
  void addCopy(const Piece& piece, BufferId to, int64_t row, gpu::RowCopy copy);
  void addSums(const Family& family, const Task& task);
  void addRowWork(const Family& family, const Task& task);
  void addNothing(bool isRemote);

  template <class Work>
  void add(gpu::TaskKind kind, std::vector<Work>& list, const Work& work) {
    tables_.records.push_back({kind, static_cast<uint32_t>(list.size()), 0, {}, {}});
    list.push_back(work);
  }

  const Step& step_;
  const Staging& staged_;
  GpuBackend& backend_;
  StepTables& tables_;
  const int columns_;  // of the kernel's tiles
  MatrixTable matrices_;
};

}  // namespace sluice
