// CpuDevice: the device whose workers are threads of this process, and whose memory is the host's. Its steps
// lease the workers, so that devices of several transports share them.
//
// Symmetric memory is the transport's, which CPU threads store to and signal in.
#pragma once

#include <memory>

#include "runtime/comm/transport.h"
#include "runtime/exec/device.h"
#include "runtime/workers/worker_pool.h"

namespace sluice {

struct CpuOptions {
  int threads = 0;  // workers; 0: this rank's share of the cores that the process may use
  bool pin = true;  // bind them to cores that no other process has claimed, where there are enough
};

class CpuDevice final : public Device {
 public:
  // With workers for any executor, or only so many as the executor that load() makes of these can use. Error:
  // the system cannot start them. The transport outlives the device.
  static Expected<std::unique_ptr<Device>> start(Transport& transport, const CpuOptions& options);
  static Expected<std::unique_ptr<Device>> startFor(const Plan& plan, const LoadOptions& load,
                                                    Transport& transport, const CpuOptions& options);

  int workers() const override { return workers_->count(); }
  Expected<DeviceMemory> reserve(size_t bytes) override;
  Expected<SymmetricMemory> allocate(size_t bytes) override;
  // Errors: no kernels for this processor, or none for the types that the program multiplies.
  Expected<std::unique_ptr<Executor>> load(std::shared_ptr<const Plan> plan,
                                           const LoadOptions& options) override;

 private:
  CpuDevice(Transport& transport, std::shared_ptr<WorkerPool> workers)
      : transport_(transport), workers_(std::move(workers)) {}
  static Expected<std::unique_ptr<Device>> start(Transport& transport, const CpuOptions& options, int useful);

  Transport& transport_;
  const std::shared_ptr<WorkerPool> workers_;
};

}  // namespace sluice
