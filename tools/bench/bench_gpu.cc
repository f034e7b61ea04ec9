#include "tools/bench/bench_gpu.h"

#include <fmt/format.h>

#include <utility>

#include "tools/bench/cublas_peer.h"
#include "tools/cli/files.h"

namespace sluice::tools {
namespace {

Expected<GpuSamples> measure(const BenchGpu& gpu, const GpuPlan& plan, const GpuCase& c,
                             const ProgramsOf& programsOf) {
  const Expected<GpuPrograms> programs = programsOf(c);
  if (!programs) return programs.error();
  const Expected<BackendMaker> backends = gpu.backends();
  if (!backends) return backends.error();
  return measureOnGpu(c, *programs, plan, *backends, gpu.peers);
}

}  // namespace

Expected<BenchGpu> findBenchGpu(const std::string& device) {
  const Expected<GpuFacts> facts = describeCuda(device);
  if (!facts) return facts.error();
  return BenchGpu{*facts, [device] { return findCuda(device, 1); }, &makeCublasPeers};
}

Status benchOnGpu(const BenchGpu& gpu, const GpuBench& bench, const ProgramsOf& programsOf) {
  if (Status printed = printText(formatText(gpu.facts, bench.plan)); !printed) return printed;
  std::vector<GpuOutcome> all;
  size_t failed = 0;
  for (const GpuCase& c : bench.cases) {
    all.push_back({c.name, measure(gpu, bench.plan, c, programsOf)});
    const Expected<GpuSamples>& samples = all.back().samples;
    failed += !samples || hasErrors(*samples);
    const std::string text =
        samples ? formatText(*samples) : fmt::format("{}: error: {}\n", c.name, samples.error().message);
    if (Status printed = printText("\n" + text); !printed) return printed;
  }
  if (!bench.json.empty())
    if (Status written = writeText(bench.json, formatJson(gpu.facts, all)); !written) return written;
  if (failed == 0) return {};
  return Error{fmt::format("{} of {} cases have errors", failed, all.size())};
}

}  // namespace sluice::tools
