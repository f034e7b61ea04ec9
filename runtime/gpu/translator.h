// Translator: what the records of a task do, in the lists of StepTables.
#pragma once

#include "runtime/gpu/matrices.h"
#include "runtime/gpu/staging.h"
#include "runtime/gpu/step_tables.h"

namespace sluice {

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
