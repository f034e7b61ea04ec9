#include "runtime/cpu/cpu_device.h"

#include <algorithm>
#include <limits>

#include "runtime/abi/kernels.h"
#include "runtime/comm/reservation.h"
#include "runtime/cpu/cpu_executor.h"
#include "runtime/cpu/cpu_step.h"
#include "runtime/workers/cores.h"

namespace sluice {

Expected<std::unique_ptr<Device>> CpuDevice::start(Transport& transport, const CpuOptions& options) {
  return start(transport, options, std::numeric_limits<int>::max());
}

Expected<std::unique_ptr<Device>> CpuDevice::startFor(const Plan& plan, const LoadOptions& load,
                                                      Transport& transport, const CpuOptions& options) {
  return start(transport, options, load.inKeyOrder ? 0 : countCores(plan.program()));
}

Expected<std::unique_ptr<Device>> CpuDevice::start(Transport& transport, const CpuOptions& options,
                                                   int useful) {
  const LocalPlace place = {transport.localRank(), transport.localRanks(), transport.kind() != "threads"};
  CoreShare share{0, {}};
  if (useful > 0) share = computeShare(usableCores(), place, options.threads);
  if (!options.pin) share.units.clear();
  auto workers =
      WorkerPool::of(std::min(share.threads, useful), share.units, place.isProcess ? 0 : place.rank);
  // where the system has too few threads for a set, that is an error here already
  if (const auto first = workers->lease(); !first) return first.error();
  return std::unique_ptr<Device>(new CpuDevice(transport, std::move(workers)));
}

Expected<DeviceMemory> CpuDevice::reserve(size_t bytes) {
  auto made = Reservation::reserve(bytes);
  if (!made) return made.error();
  const auto memory = std::make_shared<const Reservation>(std::move(*made));
  return DeviceMemory{memory->data(), memory->size(), memory};
}

Expected<SymmetricMemory> CpuDevice::allocate(size_t bytes) {
  const auto handle = transport_.allocate(bytes);
  if (!handle) return handle.error();
  return SymmetricMemory{*handle, transport_.local(*handle), bytes};
}

Expected<std::unique_ptr<Executor>> CpuDevice::load(std::shared_ptr<const Plan> plan,
                                                    const LoadOptions& options) {
  const auto kernels = ops::selectKernels();
  if (!kernels) return kernels.error();
  if (Status can = checkProducts(plan->program(), **kernels); !can) return can.error();
  if (options.inKeyOrder)
    return std::unique_ptr<Executor>(
        std::make_unique<SerialExecutor>(std::move(plan), **kernels, options.panelBytes));
  return std::unique_ptr<Executor>(
      std::make_unique<ParallelExecutor>(std::move(plan), **kernels, options.panelBytes, *workers_));
}

}  // namespace sluice
