// GpuDevice: the device whose tasks a persistent kernel runs (ops/gpu).
#pragma once

#include <memory>
#include <utility>

#include "runtime/exec/device.h"
#include "runtime/gpu/gpu_backend.h"

namespace sluice {

class GpuDevice final : public Device {
 public:
  explicit GpuDevice(std::unique_ptr<GpuBackend> backend) : backend_(std::move(backend)) {}

  int workers() const override { return backend_->blocks(); }
  Expected<DeviceMemory> reserve(size_t bytes) override { return backend_->reserve(bytes); }
  Expected<SymmetricMemory> allocate(size_t bytes) override { return backend_->allocate(bytes); }
  bool isOnHost() const override { return false; }
  Status read(void* to, const std::byte* from, size_t bytes) override {
    return backend_->copyOut(to, from, bytes);
  }
  Expected<const std::byte*> onHost(const std::byte* data, size_t bytes,
                                    std::vector<std::byte>& copy) override;
  Expected<std::shared_ptr<StreamMark>> mark(void* stream) override { return backend_->mark(stream); }
  Status beginAfter(StreamMark& mark) override;
  Status endBefore(StreamMark& mark) override;
  // Errors: a family that the kernel cannot run; tasks in key order, which a GPU does not have.
  Expected<std::unique_ptr<Executor>> load(std::shared_ptr<const Plan> plan,
                                           const LoadOptions& options) override;

 private:
  const std::unique_ptr<GpuBackend> backend_;
  bool isFollowing_ = false;  // a stream of the caller, in the step under way
};

// Makes devices on those backends.
DeviceMaker devicesOn(BackendMaker backends);

}  // namespace sluice
