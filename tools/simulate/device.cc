#include "tools/simulate/device.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice::tools {
namespace {

Status checkCores(const TaskProgram& program, const Target& target) {
  const auto describe = [](int32_t cores, int32_t cube, int32_t vector) {
    return cube > 0 ? fmt::format("{} cube and {} vector cores", cube, vector)
                    : fmt::format("{} unified cores", cores);
  };
  const bool sameKind = (program.cubeCores > 0) == (target.cubeCores > 0);
  if (sameKind && program.cubeCores <= target.cubeCores && program.vectorCores <= target.vectorCores)
    return {};
  return Error{fmt::format("found {}, expected {}{} of target '{}'",
                           describe(program.cores, program.cubeCores, program.vectorCores),
                           sameKind ? "at most the " : "the kinds of cores of the ",
                           describe(target.cores, target.cubeCores, target.vectorCores), target.name)};
}

}  // namespace

Expected<SimDevice> makeSimDevice(const TaskProgram& program, const std::string& name, int workers) {
  const Expected<Target> target = loadTarget(name, targetFolders(""));
  if (!target) return target.error();
  if (!target->rates)
    return Error{fmt::format(
        "target '{}': found no rates, expected matrix, vector, memory, caches, link and task", target->name)};
  if (Status fits = checkCores(program, *target); !fits) return fits.error();
  const bool apart = program.cubeCores > 0;
  const int cores = apart ? program.cubeCores + program.vectorCores : program.cores;
  if (workers > cores)
    return Error{fmt::format("found {} workers, expected 1 to {}, the cores of the program", workers, cores)};
  const int most = apart ? cores : std::min(cores, target->cores);
  return SimDevice{target->name, *target->rates, workers > 0 ? workers : most};
}

}  // namespace sluice::tools
