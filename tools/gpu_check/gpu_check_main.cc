#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/command_line.h"
#include "tools/gpu_check/checks.h"
#include "tools/gpu_check/ladder.h"

namespace sluice::tools {
namespace {

struct Arguments {
  CheckPlan plan;
  LadderPlan ladder;
  std::vector<std::string> probes;
  std::string device = "cuda", json;
  std::optional<double> timeout;
  bool isList = false, noProbes = false;
};

void declare(CLI::App& app, Arguments& arguments) {
  app.add_option("program", arguments.plan.programs, "program files, of up to 8 ranks (default: probes only)")
      ->type_name("layer.slp");
  app.add_flag("--list", arguments.isList, "print the probes, each with its rung before it, and exit");
  app.add_option("--probe", arguments.probes,
                 "run only this probe; may be given several times (default: all)")
      ->type_name("NAME");
  app.add_flag("--no-probes", arguments.noProbes, "only check the programs");
  app.add_option("--device", arguments.device, "the GPU (default: cuda, the first one)")
      ->type_name("cuda[:N]");
  app.add_option("--blocks", arguments.plan.blocks,
                 "numbers of blocks of a rank that must give the same bits")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->type_name("N,N");
  // of numbers the last one counts, so that a script's caller can replace what the script says
  app.option_defaults()->take_last();
  app.add_option("--cases", arguments.ladder.cases, "random cases of each probe of the kernel (default: 40)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  app.add_option("--seed", arguments.ladder.firstSeed, "seed of the first of these cases (default: 1)")
      ->type_name("SEED");
  app.add_option("--runs", arguments.plan.runs, "runs that must give the same bits (default: 200)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  app.add_option("--timed-runs", arguments.plan.timedRuns, "runs of which the fastest counts (default: 10)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  app.add_option(
         "--timeout", arguments.timeout,
         "longest wait in a kernel (default: 10, in probes of the hardware 0.05); under compute-sanitizer, "
         "which is 50 to 200 times slower, 600 or more")
      ->check(notNan)
      ->check(CLI::Range(1e-3, 1e6))
      ->type_name("SECONDS");
  app.add_option("--json", arguments.json, "also write the results to this file")->type_name("FILE");
  app.footer(
      R"(Prints a line for each check. First come probes, on rungs that stand on those below them: 0 the machine,
1 a launch as large as the kernel's, 2 facts of the hardware that the kernel relies on, 3 cases of the
kernel's own tests, 4 how long its parts take. Then, of each program, results as CPU threads give them,
the same bits for any number of blocks and in every run, a report where a signal is lost, times.

exit status: 0 all passed, 1 a check failed, 2 wrong usage)");
}

// The probes to run. Error: a name that none has.
Expected<std::vector<NamedCheck>> chooseProbes(std::vector<NamedCheck> all, const Arguments& arguments) {
  if (arguments.probes.empty()) return all;
  std::vector<NamedCheck> chosen;
  for (const std::string& name : arguments.probes) {
    const auto found = std::ranges::find(all, name, &NamedCheck::name);
    if (found == all.end())
      return Error{fmt::format("--probe: found '{}', expected a name that --list prints", name)};
    chosen.push_back(*found);
  }
  return chosen;
}

Expected<int> check(Arguments& arguments, const MachineOf& machineOf) {
  CheckMachine machine = machineOf(arguments.device);
  if (arguments.plan.blocks.empty()) arguments.plan.blocks = {7, 1};
  if (arguments.timeout)
    arguments.plan.timeoutSeconds = arguments.ladder.timeoutSeconds = machine.probes.timeoutSeconds =
        *arguments.timeout;
  arguments.plan.lostSeconds = std::min(arguments.plan.lostSeconds, arguments.plan.timeoutSeconds);
  const std::vector<NamedCheck> all = makeLadder(machine, arguments.ladder);
  if (arguments.isList) {
    std::string text;
    for (const NamedCheck& each : all) text += fmt::format("{} {}\n", each.rung, each.name);
    return succeededIf(printText(text));
  }
  const auto probes = chooseProbes(all, arguments);
  if (!probes) return probes.error();
  if (!arguments.json.empty())
    if (Status writable = probeWritable({arguments.json}); !writable) return writable.error();

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
                       {"seconds", result.seconds},
                       {"figures", result.figures}});
  };
  if (!arguments.noProbes) runLadder(*probes, report);
  runChecks(arguments.plan, machine.backends, report);
  fmt::print("{} passed, {} failed\n", passed, failed);
  if (!arguments.json.empty())
    if (Status written = writeText(arguments.json, results.dump(2) + "\n"); !written) return written.error();
  return failed == 0 ? kExitSuccess : kExitFailure;
}

}  // namespace

int runGpuCheck(int argc, char** argv, const MachineOf& machineOf) {
  const auto declareAll = [&](CLI::App& app) -> std::function<Expected<int>()> {
    const auto arguments = std::make_shared<Arguments>();
    declare(app, *arguments);
    app.set_version_flag("--version", versionText("gpu_check", ""), kVersionHelp);
    return [arguments, &machineOf] { return check(*arguments, machineOf); };
  };
  return runMain("gpu_check: checks the programs of a layer on a GPU", "gpu_check", argc, argv, declareAll);
}

}  // namespace sluice::tools
