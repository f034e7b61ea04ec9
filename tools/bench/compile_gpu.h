// Compiles the cases that are measured on a GPU.
#pragma once

#include "tools/bench/bench_layer.h"
#include "tools/bench/measure_gpu.h"

namespace sluice::tools {

// For the cores of `options.target`. Errors: as compileRows() and compileLayer().
Expected<GpuPrograms> compileForGpu(const GpuCase& c, const BenchOptions& options);

}  // namespace sluice::tools
