// gpu_check: everything that a GPU can be checked for with compiled programs, a line for each check.
#include <fmt/format.h>

#include "tools/gpu_check/checks.h"

namespace sluice::tools {
namespace {

// On the device that this thread has chosen, by the calls of the backend that gave the memory.
Status launchOnDevice(const gpu::ProbeLaunch& launch, std::span<const MemoryRange> /*memory*/) {
  const char* const said = gpu::launchProbe(launch);
  return said == nullptr ? Status() : Status(Error{fmt::format("CUDA: {}", said)});
}

CheckMachine cudaMachine(const std::string& device) {
  return {.facts = [device] { return describeCuda(device); },
          .probes = {.launch = launchOnDevice},
          .backends = [device](int ranks, int blocks) { return findCuda(device, ranks, blocks); }};
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  return sluice::tools::runGpuCheck(argc, argv, &sluice::tools::cudaMachine);
}
