// gpu_bench: `sluice bench --device` for programs that were compiled elsewhere, without the compiler.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/bench/bench_gpu.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/command_line.h"

namespace sluice::tools {
namespace {

struct Arguments {
  std::string programs, device = "cuda";
  std::vector<std::string> cases;
  GpuBench bench;
};

void declare(CLI::App& app, Arguments& a) {
  app.add_option("programs", a.programs, "folder of CASE.slp and, of layers, CASE.layer.slp")
      ->required()
      ->type_name("FOLDER");
  app.add_option("--device", a.device, "the GPU (default: cuda, the first one)")->type_name("cuda[:N]");
  app.add_option("--case", a.cases, fmt::format("default: {}", fmt::join(gpuCaseNames(), ",")))
      ->delimiter(',')
      ->check([](const std::string& name) {
        return gpuCase(name) ? std::string() : fmt::format("found '{}'", name);
      })
      ->type_name("CASE,CASE");
  app.add_option("--repeat", a.bench.plan.repeat, "measured repetitions (default: 11)")
      ->check(CLI::Range(1, 100000))
      ->type_name("N");
  app.add_option("--json", a.bench.json, "write every repetition to a file")->type_name("FILE");
  app.footer("exit status: 0 done, 1 bad input, or something was not measured, 2 wrong usage");
}

Expected<GpuPrograms> load(const std::string& folder, const GpuCase& c) {
  Expected<Program> products = Program::load(fmt::format("{}/{}.slp", folder, c.name));
  if (!products) return products.error();
  GpuPrograms programs{std::move(*products), {}};
  if (!c.layer) return programs;
  Expected<Program> whole = Program::load(fmt::format("{}/{}.layer.slp", folder, c.name));
  if (!whole) return whole.error();
  programs.whole = std::move(*whole);
  return programs;
}

Status bench(Arguments& a) {
  for (const std::string& name : a.cases.empty() ? gpuCaseNames() : a.cases)
    a.bench.cases.push_back(*gpuCase(name));
  if (!a.bench.json.empty())
    if (Status writable = probeWritable({a.bench.json}); !writable) return writable;
  const Expected<BenchGpu> gpu = findBenchGpu(a.device);
  if (!gpu) return Error{fmt::format("--device: {}", gpu.error().message)};
  return benchOnGpu(*gpu, a.bench, [&](const GpuCase& c) { return load(a.programs, c); });
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  using namespace sluice::tools;
  const auto declareAll = [&](CLI::App& app) -> std::function<sluice::Expected<int>()> {
    const auto arguments = std::make_shared<Arguments>();
    declare(app, *arguments);
    app.set_version_flag("--version", versionText("gpu_bench", ""), kVersionHelp);
    return [arguments] { return succeededIf(bench(*arguments)); };
  };
  return runMain("gpu_bench: measures compiled layers on a GPU", "gpu_bench", argc, argv, declareAll);
}
