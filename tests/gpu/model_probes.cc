#include "tests/gpu/model_probes.h"

#include "ops/gpu/model/launch.h"
#include "ops/gpu/probes.h"

namespace sluice {

tools::ProbeMachine modelMachine(uint64_t seed) {
  tools::ProbeMachine machine{.isModel = true, .signals = 3};
  machine.launch = [seed](const gpu::ProbeLaunch& launch, std::span<const MemoryRange> memory) mutable {
    for (const MemoryRange& range : memory) gpu::model::registerGlobal(range.data, range.bytes);
    std::string problem;
    gpu::probes::withProbe(launch, [&](auto kernel) {
      using Kernel = decltype(kernel);
      problem = gpu::model::run({.blocks = Kernel::kBlocks == 0 ? launch.blocks : Kernel::kBlocks,
                                 .threads = Kernel::kThreads,
                                 .sharedBytes = Kernel::kSharedBytes,
                                 .seed = seed++},
                                [&] { Kernel::run(launch.arguments); });
    });
    return problem.empty() ? Status() : Status(Error{"the model: " + problem});
  };
  return machine;
}

}  // namespace sluice
