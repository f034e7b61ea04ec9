// Probes: facts of the hardware of which the model is made and that kernels rely on, and what is not known of
// it yet. On a GPU they come first: where one fails, results of the kernel mean nothing.
#pragma once

#include <span>

#include "tools/gpu_check/check_result.h"
#include "tools/gpu_check/probe_run.h"

namespace sluice::tools {

// A probe. Returns figures, or what is wrong; errors of the run come before both.
using ProbeBody = Expected<std::string> (*)(ProbeRun& run);
struct NamedProbe {
  const char* name;
  ProbeBody body;
  bool isOfLaunch = false;  // without which nothing else can run
  bool isForGpus = false;   // of what kernels do not do any more, and the model refuses
};
// What could hang or end the process where it is wrong comes last.
std::span<const NamedProbe> allProbes();

// Runs one, on a backend of one rank.
Expected<std::string> runProbe(const NamedProbe& probe, GpuBackend& backend, const ProbeMachine& machine);
// Runs all probes; each result is reported as soon as it is known. Returns whether all passed.
bool runProbes(GpuBackend& backend, const ProbeMachine& machine, const ReportResult& report);

// These probe products and functions; the others are with the list.
Expected<std::string> probeProducts(ProbeRun& run, int columns);
Expected<std::string> probeSubnormalProducts(ProbeRun& run);
Expected<std::string> probeSubnormalAdditions(ProbeRun& run);
Expected<std::string> probeExponential(ProbeRun& run);
Expected<std::string> probeReciprocal(ProbeRun& run);
Expected<std::string> probeRounding(ProbeRun& run);

}  // namespace sluice::tools
