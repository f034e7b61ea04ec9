// EditedBackend: a backend whose tables are changed before each launch. For checks of what is reported when a
// kernel does something else than its tables say.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "runtime/gpu/gpu_backend.h"

namespace sluice {

using EditTables = std::function<void(StepTables& tables)>;

class EditedBackend final : public GpuBackend {
 public:
  EditedBackend(std::unique_ptr<GpuBackend> real, EditTables edit)
      : real_(std::move(real)), edit_(std::move(edit)) {}

  int blocks() const override { return real_->blocks(); }
  int tileColumns() const override { return real_->tileColumns(); }
  Expected<DeviceMemory> reserve(size_t bytes) override { return real_->reserve(bytes); }
  Expected<SymmetricMemory> allocate(size_t bytes) override { return real_->allocate(bytes); }
  std::byte* peer(int rank, SymmetricHandle handle) override { return real_->peer(rank, handle); }
  bool reaches(const void* data) const override { return real_->reaches(data); }
  Status copyIn(std::byte* to, const void* from, size_t bytes) override {
    return real_->copyIn(to, from, bytes);
  }
  Status copyOut(void* to, const std::byte* from, size_t bytes) override {
    return real_->copyOut(to, from, bytes);
  }
  Status zero(std::byte* data, size_t bytes) override { return real_->zero(data, bytes); }
  Status mapOf(const gpu::MappedMatrix& matrix, gpu::TensorMap& map) const override {
    return real_->mapOf(matrix, map);
  }
  Expected<StepOutcome> run(const StepTables& tables, Transport& transport, double timeoutSeconds) override {
    StepTables edited = tables;
    edit_(edited);
    return real_->run(edited, transport, timeoutSeconds);
  }

 private:
  const std::unique_ptr<GpuBackend> real_;
  const EditTables edit_;
};

inline BackendMaker editedBackends(BackendMaker real, EditTables edit) {
  return [real = std::move(real),
          edit = std::move(edit)](Transport& transport) -> Expected<std::unique_ptr<GpuBackend>> {
    auto backend = real(transport);
    if (!backend) return backend.error();
    return std::unique_ptr<GpuBackend>(new EditedBackend(std::move(*backend), edit));
  };
}

// The first task of this rank that signals then does not.
inline void loseSignal(StepTables& tables) {
  for (gpu::ChainTask& record : tables.records)
    for (gpu::EventSignal& signal : record.signals)
      if (record.kind == gpu::TaskKind::kProduct && signal.amount > 0) {
        signal.amount = 0;
        return;
      }
}

}  // namespace sluice
