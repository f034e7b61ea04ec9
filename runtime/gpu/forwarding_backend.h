// ForwardingBackend: a backend that does what another one does, for those that change or watch a part of it.
#pragma once

#include <memory>
#include <utility>

#include "runtime/gpu/gpu_backend.h"

namespace sluice {

class ForwardingBackend : public GpuBackend {
 public:
  explicit ForwardingBackend(std::shared_ptr<GpuBackend> real) : real_(std::move(real)) {}

  int blocks() const override { return real_->blocks(); }
  int tileColumns() const override { return real_->tileColumns(); }
  Expected<DeviceMemory> reserve(size_t bytes) override { return real_->reserve(bytes); }
  Expected<SymmetricMemory> allocate(size_t bytes) override { return real_->allocate(bytes); }
  std::byte* peer(int rank, SymmetricHandle handle) override { return real_->peer(rank, handle); }
  bool reaches(const void* data) const override { return real_->reaches(data); }
  bool isOnHost(const void* data) const override { return real_->isOnHost(data); }
  Status copyIn(std::byte* to, const void* from, size_t bytes) override {
    return real_->copyIn(to, from, bytes);
  }
  Status copyOut(void* to, const std::byte* from, size_t bytes) override {
    return real_->copyOut(to, from, bytes);
  }
  Status zero(std::byte* data, size_t bytes) override { return real_->zero(data, bytes); }
  Expected<std::shared_ptr<StreamMark>> mark(void* stream) override { return real_->mark(stream); }
  Status follow(StreamMark& mark) override { return real_->follow(mark); }
  Status settle() override { return real_->settle(); }
  Status precede(StreamMark& mark) override { return real_->precede(mark); }
  Status makeMap(const gpu::MappedMatrix& matrix, gpu::TensorMap& map) const override {
    return real_->makeMap(matrix, map);
  }
  Expected<StepOutcome> run(const StepTables& tables, Transport& transport, double timeoutSeconds) override {
    return real_->run(tables, transport, timeoutSeconds);
  }

 private:
  const std::shared_ptr<GpuBackend> real_;
};

}  // namespace sluice
