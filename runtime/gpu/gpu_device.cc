#include "runtime/gpu/gpu_device.h"

#include <utility>

#include "runtime/gpu/gpu_executor.h"
#include "runtime/gpu/supported.h"

namespace sluice {

Expected<std::unique_ptr<Executor>> GpuDevice::load(std::shared_ptr<const Plan> plan,
                                                    const LoadOptions& options) {
  if (options.inKeyOrder)
    return Error{"a GPU does not run tasks in key order: use the serial executor of the CPU"};
  if (Status can = checkForGpu(*plan); !can) return can.error();
  return std::unique_ptr<Executor>(std::make_unique<GpuExecutor>(std::move(plan), *backend_));
}

DeviceMaker devicesOn(BackendMaker backends) {
  return [backends = std::move(backends)](Transport& transport) -> Expected<std::unique_ptr<Device>> {
    auto backend = backends(transport);
    if (!backend) return backend.error();
    return std::unique_ptr<Device>(new GpuDevice(std::move(*backend)));
  };
}

}  // namespace sluice
