#include "runtime/gpu/gpu_device.h"

#include <utility>

#include "runtime/gpu/gpu_executor.h"
#include "runtime/gpu/translator.h"

namespace sluice {

Expected<const std::byte*> GpuDevice::onHost(const std::byte* data, size_t bytes,
                                             std::vector<std::byte>& copy) {
  if (bytes == 0) return data;
  if (backend_->isOnHost(data)) {
    // the caller's stream may be about to write it
    Status settled = isFollowing_ ? backend_->settle() : Status();
    return settled ? Expected(data) : settled.error();
  }
  copy.resize(bytes);
  if (Status copied = backend_->copyOut(copy.data(), data, bytes); !copied) return copied.error();
  return copy.data();
}

Status GpuDevice::beginAfter(StreamMark& mark) {
  isFollowing_ = true;
  return backend_->follow(mark);
}

Status GpuDevice::endBefore(StreamMark& mark) {
  isFollowing_ = false;
  return backend_->precede(mark);
}

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
