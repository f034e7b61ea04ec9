// `sluice bench --device`: measures cases on a GPU, and prints each as soon as it is done, as text and as
// JSON. One thread calls.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/gpu/cuda/cuda_device.h"
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

// This is the peak of bf16 without sparsity, per second: H100 SXM and H200 SXM (NVIDIA H200 Tensor Core GPU
// datasheet: 1,979 TFLOP/s with sparsity).
inline constexpr double kGpuPeak = 989e12;

// Figures of a line.
struct GpuFigures {
  double median = 0, least = 0, most = 0;   // seconds of a step
  double launch = 0, bind = 0, tables = 0;  // medians, seconds; 0: not known
  double flops = 0;                         // of the products, per second of the median step
  double shareOfPeak = 0;
  double launchShare = 0;  // of the peak, in the time of the launch
};
// Requires at least one repetition.
GpuFigures computeFigures(const GpuLine& line, const Work& work);

std::string formatText(const GpuFacts& gpu, const GpuPlan& plan);
std::string formatText(const GpuSamples& samples);

// Whether something was not measured, or differs.
bool hasErrors(const GpuSamples& samples);

// A case that failed has an error instead of passes.
struct GpuOutcome {
  std::string name;
  Expected<GpuSamples> samples;
};
std::string formatJson(const GpuFacts& gpu, const std::vector<GpuOutcome>& all);

}  // namespace sluice::tools
