// Compiles the cases of gpu_bench. usage: make_bench_programs FOLDER
#include <cstdio>
#include <string>

#include "compiler/target/target.h"
#include "runtime/program/codec.h"
#include "tools/bench/bench_layer.h"

namespace sluice::tools {
namespace {

Status makeAll(const std::string& folder, const BenchOptions& options) {
  for (const std::string& name : gpuCaseNames()) {
    const GpuCase c = *gpuCase(name);
    const Expected<GpuPrograms> programs = compileForGpu(c, options);
    if (!programs) return Error{name + ": " + programs.error().message};
    Status written = writeProgram(programs->products.tables(), folder + "/" + name + ".slp");
    if (written && programs->whole)
      written = writeProgram(programs->whole->tables(), folder + "/" + name + ".layer.slp");
    if (!written) return written;
  }
  return {};
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  using namespace sluice::tools;
  if (argc != 2) return 2;
  const BenchOptions options{.target = "h200", .targetFolders = sluice::targetFolders(argv[0])};
  const sluice::Status made = makeAll(argv[1], options);
  if (!made) std::fprintf(stderr, "make_bench_programs: error: %s\n", made.error().message.c_str());
  return made ? 0 : 1;
}
