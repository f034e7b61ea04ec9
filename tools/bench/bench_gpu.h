// `sluice bench --device`: measures cases on a GPU, and prints each as soon as it is done. One thread calls.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/bench/gpu_report.h"
#include "tools/bench/measure_gpu.h"

namespace sluice::tools {

// A GPU to measure on. Backends are made for each case, so that its memory ends with it.
struct BenchGpu {
  GpuFacts facts;
  std::function<Expected<BackendMaker>()> backends;
  PeersOf peers;
};
// With cuBLAS as peers. Errors: from findCuda().
Expected<BenchGpu> findBenchGpu(const std::string& device);

struct GpuBench {
  std::vector<GpuCase> cases;
  GpuPlan plan;
  std::string json;  // a file; empty: none
};
using ProgramsOf = std::function<Expected<GpuPrograms>(const GpuCase& c)>;

// A case that fails is printed as an error, and the next one is measured. Error: something was not measured,
// or differs; a file that cannot be written.
Status benchOnGpu(const BenchGpu& gpu, const GpuBench& bench, const ProgramsOf& programsOf);

}  // namespace sluice::tools
