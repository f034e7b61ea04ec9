#include "tests/tools/gpu_check/model_machine.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>
#include <utility>

#include "runtime/gpu/edited_backend.h"
#include "tests/gpu/model_probes.h"
#include "tests/runtime/gpu/model_group.h"

namespace sluice::tools {
namespace {

constexpr const char* kFaults[] = {"",      "driver", "kind",  "memory", "alignment", "majors",
                                   "boxes", "hang",   "crash", "kernel", "signals",   "ranks"};

GpuFacts factsWith(const std::string& fault) {
  GpuFacts facts{.name = "the model", .multiprocessors = 2, .clock = 1e9, .driver = 13000, .runtime = 13000};
  facts.bytes = facts.freeBytes = size_t{64} << 30;
  if (fault == "driver") facts.driver = 12040;
  if (fault == "kind") facts.major = 8;
  if (fault == "memory") facts.freeBytes = size_t{1} << 30;
  return facts;
}

// Before a launch and after it.
void breakBefore(const std::string& fault, gpu::ProbeLaunch& launch) {
  if (fault == "majors")
    launch.form.encoding ^= gpu::kMajorsInverted, launch.arguments.encoding ^= gpu::kMajorsInverted;
  if (launch.probe != gpu::Probe::kParity) return;
  if (fault == "crash") std::abort();
  while (fault == "hang") pause();
}
void breakAfter(const std::string& fault, const gpu::ProbeLaunch& launch) {
  if (fault == "boxes" && launch.probe == gpu::Probe::kCopyBox)
    std::memset(launch.arguments.out + 256, 0, 128);
  if (fault == "alignment" && launch.probe == gpu::Probe::kLaunch)
    reinterpret_cast<uint32_t*>(launch.arguments.out)[1] += 512;
}

void breakTables(const std::string& fault, StepTables& tables) {
  if (fault == "kernel")
    for (gpu::Product& each : tables.products) each.alpha *= 2;
  if (fault == "signals")
    for (gpu::ChainTask& record : tables.records)
      if (record.kind == gpu::TaskKind::kRowWork && tables.rowWorks[record.work].columns == 0)
        std::ranges::fill(record.signals, gpu::EventSignal{});
  if (fault == "ranks" && tables.rank == 1)
    for (gpu::RowCopy& copy : tables.rowCopies) copy.rows /= 2;
}

}  // namespace

Status checkFault(const std::string& fault) {
  if (std::ranges::find(kFaults, fault) != std::end(kFaults)) return {};
  return Error{"there is no fault '" + fault + "'"};
}

CheckMachine modelMachineWith(const std::string& fault) {
  CheckMachine machine;
  machine.facts = [fault] { return factsWith(fault); };
  machine.probes = modelMachine(1);
  machine.probes.launch = [fault, launch = machine.probes.launch](const gpu::ProbeLaunch& asked,
                                                                  auto memory) {
    gpu::ProbeLaunch broken = asked;
    breakBefore(fault, broken);
    const Status status = launch(broken, memory);
    breakAfter(fault, broken);
    return status;
  };
  const auto groups = std::make_shared<std::list<ModelGroup>>();
  machine.backends = [fault, groups](int ranks, int blocks) -> Expected<BackendMaker> {
    groups->emplace_back(ranks, ModelOptions{.blocks = blocks == 0 ? 2 : blocks,
                                             .columns = 256,
                                             .seed = groups->size() + 1,
                                             .hasOwnMemory = true});
    return editedBackends(groups->back().backends(),
                          [fault](StepTables& tables) { breakTables(fault, tables); });
  };
  return machine;
}

}  // namespace sluice::tools
