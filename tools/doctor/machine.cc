#include "runtime/base/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <fstream>

#include "runtime/abi/kernels.h"
#include "runtime/workers/cores.h"
#include "tools/doctor/doctor.h"
#include "tools/launch/run_command.h"

namespace sluice::tools {
namespace {

std::string systemName() {
  std::string release = "unknown system";
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("PRETTY_NAME=")) {
      release = line.substr(line.find('=') + 1);
      if (release.size() > 1 && release.front() == '"') release = release.substr(1, release.size() - 2);
    }
  utsname kernel{};
  return ::uname(&kernel) == 0 ? fmt::format("{}, {} {}", release, kernel.sysname, kernel.release) : release;
}

std::string kernelNames() {
  std::string names;
  for (const ops::Isa isa : ops::supportedIsas())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", ops::isaName(isa));
  const Expected<const ops::KernelSet*> chosen = ops::selectKernels();
  return chosen ? fmt::format("{}; used: {}", names, ops::isaName((*chosen)->isa)) : chosen.error().message;
}

// What would make a layer faster is the change of a finding.
Finding kernels() {
  const bool isChosen = std::getenv("SLUICE_ISA") != nullptr;
  return {"kernels", FindingState::kFact, kernelNames(),
          isChosen ? "unset SLUICE_ISA: the fastest are used then" : ""};
}

std::string hugePages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  if (!std::getline(file, line)) return "the system has none";
  const size_t begin = line.find('['), end = line.find(']');
  return begin == std::string::npos || end == std::string::npos ? line
                                                                : line.substr(begin + 1, end - begin - 1);
}

}  // namespace

Findings describeMachine() {
  const Cores cores = usableCores();
  const MemoryLeft memory = memoryLeft();
  const std::string pages = hugePages();
  const Expected<CommandResult> gpus = runCommand({"nvidia-smi", "-L"}, 10);
  return {
      {"system", FindingState::kFact, systemName(), ""},
      {"processor", FindingState::kFact, fmt::format("{} ({})", processorName(), processorModel()), ""},
      kernels(),
      {"cores", FindingState::kFact,
       fmt::format("{} that this process may use, with {} hardware threads", cores.count, cores.units.size()),
       ""},
      {"memory", FindingState::kFact,
       fmt::format("{:.1f} GiB left of {}", static_cast<double>(memory.bytes) / (int64_t{1} << 30),
                   memory.of),
       ""},
      {"huge pages", FindingState::kFact, pages,
       pages == "never"
           ? "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: weights are read faster"
           : ""},
      {"GPUs", FindingState::kFact,
       gpus && gpus->succeeded() ? gpus->firstLine() : "none that nvidia-smi names", ""}};
}

}  // namespace sluice::tools
