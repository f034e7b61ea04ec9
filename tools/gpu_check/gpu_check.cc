// gpu_check: everything that a GPU can be checked for with compiled programs, a line for each check.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "runtime/gpu/cuda/cuda_device.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/cli/run_main.h"
#include "tools/gpu_check/checks.h"
#include "tools/version.h"

namespace sluice::tools {
namespace {

struct Arguments {
  CheckPlan plan;
  std::string device = "cuda", json;
  bool noProbes = false;
};

void declare(CLI::App& app, Arguments& arguments) {
  app.add_option("program", arguments.plan.programs, "program files, of up to 8 ranks (default: probes only)")
      ->type_name("layer.slp");
  app.add_flag("--no-probes", arguments.noProbes, "only check the programs");
  app.add_option("--device", arguments.device, "the GPU (default: cuda, the first one)")
      ->type_name("cuda[:N]");
  app.add_option("--blocks", arguments.plan.blocks,
                 "numbers of blocks of a rank that must give the same bits")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->type_name("N,N");
  app.add_option("--runs", arguments.plan.runs, "runs that must give the same bits (default: 200)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  app.add_option("--timed-runs", arguments.plan.timedRuns, "runs of which the fastest counts (default: 10)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  app.add_option("--json", arguments.json, "also write the results to this file")->type_name("FILE");
  app.footer(
      R"(Prints a line for each check. First come probes, facts of the hardware that kernels rely on; then, of
each program, results like those of CPU threads, the same bits for any number of blocks and in every run,
a report where a signal is lost, times.

exit status: 0 all passed, 1 a check failed, 2 wrong usage)");
}

// On the device that this thread has chosen, by the calls of the backend that gave the memory.
Status launchOnDevice(const gpu::ProbeLaunch& launch, std::span<const MemoryRange> /*memory*/) {
  const char* const said = gpu::launchProbe(launch);
  return said == nullptr ? Status() : Status(Error{fmt::format("CUDA: {}", said)});
}

Expected<int> check(Arguments& arguments) {
  if (arguments.plan.blocks.empty()) arguments.plan.blocks = {7, 1};
  nlohmann::json results = nlohmann::json::array();
  int passed = 0, failed = 0;
  const auto report = [&](const CheckResult& result) {
    fmt::print("{} {} ({:.1f} s): {}\n", result.passed ? "ok    " : "FAILED", result.name, result.seconds,
               result.text);
    std::fflush(stdout);
    ++(result.passed ? passed : failed);
    results.push_back({{"name", result.name},
                       {"passed", result.passed},
                       {"text", result.text},
                       {"seconds", result.seconds}});
  };
  if (!arguments.noProbes) arguments.plan.probes.emplace().launch = launchOnDevice;
  const bool all = runChecks(
      arguments.plan, [&](int ranks, int blocks) { return findCuda(arguments.device, ranks, blocks); },
      report);
  fmt::print("{} passed, {} failed\n", passed, failed);
  if (!arguments.json.empty())
    if (Status written = writeText(arguments.json, results.dump(2) + "\n"); !written) return written.error();
  return all ? kExitSuccess : kExitFailure;
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  using namespace sluice::tools;
  const auto declareAll = [&](CLI::App& app) -> std::function<sluice::Expected<int>()> {
    const auto arguments = std::make_shared<Arguments>();
    declare(app, *arguments);
    app.set_version_flag("--version", versionText("gpu_check", ""), kVersionHelp);
    return [arguments] { return check(*arguments); };
  };
  return runMain("gpu_check: checks the programs of a layer on a GPU", "gpu_check", argc, argv, declareAll);
}
