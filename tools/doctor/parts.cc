#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "runtime/gpu/cuda/cuda_device.h"
#include "tools/doctor/doctor.h"
#include "tools/launch/run_command.h"

namespace sluice::tools {
namespace {

constexpr double kSeconds = 60;  // importing PyTorch from a slow disk

Finding mpi(const std::string& folder) {
  const Expected<CommandResult> launcher = runCommand({"mpirun", "--version"}, kSeconds);
  if (!launcher || !launcher->succeeded())
    return {"MPI", FindingState::kMissing, "no mpirun", "tools/setup --for ranks"};
  if (!std::filesystem::exists(folder + "/sluice-mpi"))
    return {"MPI", FindingState::kMissing, launcher->firstLine() + ", but no sluice-mpi in " + folder,
            "bazel build //tools:sluice-mpi"};
  return {"MPI", FindingState::kWorks, launcher->firstLine(), ""};
}

// UCX is loaded when ranks are on several machines.
Finding ucx() {
  void* const library = dlopen("libucp.so.0", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return {"UCX", FindingState::kMissing, "no libucp.so.0", "tools/setup --for ranks"};
  const auto version =
      reinterpret_cast<void (*)(unsigned*, unsigned*, unsigned*)>(dlsym(library, "ucp_get_version"));
  unsigned numbers[3] = {};
  if (version != nullptr) version(&numbers[0], &numbers[1], &numbers[2]);
  return {"UCX", FindingState::kWorks, fmt::format("{}.{}.{}", numbers[0], numbers[1], numbers[2]), ""};
}

// What a Python prints for this code; nothing if it fails.
std::string pythonSays(const std::string& python, const std::string& code) {
  const Expected<CommandResult> found = runCommand({python, "-c", code}, kSeconds);
  return found && found->succeeded() ? found->lastLine() : "";
}

// The first Python that has PyTorch: that on the PATH, or else Debian's. If none has it, all that run.
std::string findPython() {
  std::string without;
  for (const char* const python : {"python3", "/usr/bin/python3"}) {
    const std::string path = pythonSays(python, "import sys; print(sys.executable)");
    if (path.empty() || path == without) continue;
    if (!pythonSays(python, "import torch; print(torch.__version__)").empty()) return path;
    without += (without.empty() ? "" : " or ") + path;
  }
  return without.empty() ? "python3, which does not run" : without;
}

Finding package(const char* name, const char* attribute, const std::string& python, const char* change) {
  const std::string found = pythonSays(python, fmt::format("import {0}; print({0}.{1})", name, attribute));
  if (found.empty()) return {name, FindingState::kMissing, "not in " + python, change};
  return {name, FindingState::kWorks, found + " of " + python, ""};
}

Finding gpu() {
  if (const auto found = findCuda("cuda", 1); !found)
    return {"GPU", FindingState::kMissing, found.error().message, ""};
  return {"GPU", FindingState::kFact, "one of compute capability 9.0, on which Sluice has not been tried yet",
          "bazel build //tools/gpu_check:archive (docs/GPU.md)"};
}

}  // namespace

Findings findParts(const std::string& folder) {
  const std::string python = findPython();
  return {mpi(folder), ucx(), package("torch", "__version__", python, "tools/setup --for torch"),
          package("sluice_torch", "__file__", python,
                  "bazel build //ops/torch:libsluice_torch.so //tools:sluicec; export PYTHONPATH=ops/torch "
                  "(docs/PYTORCH.md)"),
          gpu()};
}

}  // namespace sluice::tools
