#include <fmt/format.h>

#include "runtime/base/clock.h"
#include "tools/gpu_check/probes.h"

namespace sluice::tools {

std::byte* ProbeRun::reserve(const void* from, size_t bytes) {
  if (!status_) return nullptr;
  auto memory = backend_.reserve(bytes);
  if (!memory) {
    status_ = memory.error();
    return nullptr;
  }
  memory_.push_back(*memory);
  ranges_.push_back({memory->data, bytes});
  copyIn(memory->data, from, bytes);
  return memory->data;
}

void ProbeRun::copyIn(std::byte* to, const void* from, size_t bytes) {
  if (status_) status_ = backend_.copyIn(to, from, bytes);
}

void ProbeRun::copyOut(void* to, const std::byte* from, size_t bytes) {
  if (status_) status_ = backend_.copyOut(to, from, bytes);
}

gpu::TensorMap ProbeRun::makeMap(const gpu::MappedMatrix& matrix) {
  gpu::TensorMap map{};
  if (status_) status_ = backend_.makeMap(matrix, map);
  return map;
}

void ProbeRun::launch(const gpu::ProbeLaunch& launch) {
  uint32_t* const late = upload(std::vector<uint32_t>{0});
  gpu::ProbeLaunch whole = launch;
  whole.arguments.late = late;
  whole.arguments.limit = static_cast<uint64_t>(limitNanoseconds(machine_.timeoutSeconds));
  whole.arguments.encoding = launch.form.encoding;
  if (status_) status_ = machine_.launch(whole, ranges_);
  if (download(late, 1)[0] != 0 && status_)
    status_ = Error{
        fmt::format("a wait of the kernel did not end within {:.0f} ms", 1e3 * machine_.timeoutSeconds)};
}

}  // namespace sluice::tools
