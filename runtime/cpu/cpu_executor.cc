#include "runtime/cpu/cpu_executor.h"

#include <algorithm>
#include <limits>

namespace sluice {
namespace {

constexpr size_t kPage = 4096;

// Whole pages, so that the memory of a worker is near the core that first touched it.
size_t findStride(size_t bytes) {
  return bytes > std::numeric_limits<size_t>::max() - kPage ? bytes : (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

CpuExecutor::CpuExecutor(std::shared_ptr<const Plan> plan, const ops::KernelSet& kernels, int64_t panelBytes)
    : plan_(std::move(plan)),
      kernels_(kernels),
      scratchStride_(findStride(countScratchBytes(*plan_, kernels))),
      panels_(*plan_, kernels, panelBytes) {}

// More than there are addresses is more than any device reserves.
size_t CpuExecutor::scratchBytes() const {
  const auto count = static_cast<size_t>(workers());
  return scratchStride_ > std::numeric_limits<size_t>::max() / count ? std::numeric_limits<size_t>::max()
                                                                     : scratchStride_ * count;
}

Status CpuExecutor::prepare(std::span<const BoundTensor> bound, Team* /*callers*/) {
  panels_.bind(bound);
  return panels_.beginStep();
}

Expected<int64_t> CpuExecutor::run(const Step& step, const RunOptions& options) {
  const CpuStep cpuStep{step, &kernels_, panels_.active() ? &panels_ : nullptr};
  auto tasks = runTasks(cpuStep, options);
  if (tasks) step.events->zero(*plan_, step.entry);
  return tasks;
}

}  // namespace sluice
