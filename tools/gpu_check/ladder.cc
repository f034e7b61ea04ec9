#include "tools/gpu_check/ladder.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/clock.h"
#include "tools/gpu_check/probes.h"

namespace sluice::tools {
namespace {

constexpr double kGibibyte = 1 << 30;
constexpr double kLeastFree = 24;  // GiB: what the largest case of gpu_bench takes, and some more

Expected<Finding> checkFacts(const CheckMachine& machine) {
  const auto facts = machine.facts();
  if (!facts) return facts.error();
  if (Status usable = checkGpu(*facts); !usable) return usable.error();
  const double free = static_cast<double>(facts->freeBytes) / kGibibyte;
  const double all = static_cast<double>(facts->bytes) / kGibibyte;
  if (free < kLeastFree)
    return Error{
        fmt::format("{}: {:.1f} of {:.1f} GiB are free, expected {} or more: end what else runs there "
                    "(nvidia-smi shows it)",
                    facts->name, free, all, kLeastFree)};
  const auto version = [](int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); };
  return Finding(
      fmt::format("{}, {} multiprocessors of at most {:.0f} MHz, {:.1f} of {:.1f} GiB free, CUDA {} "
                  "and a driver for {}",
                  facts->name, facts->multiprocessors, 1e-6 * facts->clock, free, all,
                  version(facts->runtime), version(facts->driver)),
      {{"multiprocessors", facts->multiprocessors}, {"clock_hz", facts->clock}, {"free_gib", free}});
}

Expected<Finding> checkProbe(const CheckMachine& machine, const NamedProbe& probe) {
  const auto rank = OneRank::make(machine, 0);
  if (!rank) return rank.error();
  const auto text = runProbe(probe, rank->backend(), machine.probes);
  if (!text) return text.error();
  return Finding(*text);
}

}  // namespace

std::vector<NamedCheck> makeLadder(const CheckMachine& machine, const LadderPlan& plan) {
  std::vector<NamedCheck> checks = {{kRungOfMachine, "machine", [&machine] { return checkFacts(machine); }}};
  for (const bool ofLaunch : {true, false})
    for (const NamedProbe& probe : allProbes())
      if (probe.isOfLaunch == ofLaunch && !(probe.isForGpus && machine.probes.isModel))
        checks.push_back({ofLaunch ? kRungOfLaunch : kRungOfProbes, probe.name,
                          [&machine, &probe] { return checkProbe(machine, probe); }});
  for (auto&& more : {caseChecks(machine, plan), rateChecks(machine, plan)})
    checks.insert(checks.end(), more.begin(), more.end());
  std::ranges::stable_sort(checks, {}, &NamedCheck::rung);
  return checks;
}

bool runLadder(const std::vector<NamedCheck>& checks, const ReportResult& report) {
  bool passed = true;
  for (const NamedCheck& check : checks) {
    const int64_t begin = monotonicNanoseconds();
    const Expected<Finding> found = check.run();
    const double seconds = static_cast<double>(monotonicNanoseconds() - begin) * 1e-9;
    report({check.name, found.ok(), found ? found->text : found.error().message, seconds,
            found ? found->figures : std::map<std::string, double>()});
    passed &= found.ok();
  }
  return passed;
}

}  // namespace sluice::tools
