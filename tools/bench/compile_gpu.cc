#include "tools/bench/compile_gpu.h"

#include <utility>

namespace sluice::tools {
namespace {

constexpr int kCoresOfTarget = 0;

}  // namespace

Expected<GpuPrograms> compileForGpu(const GpuCase& c, const BenchOptions& options) {
  Expected<Program> products = c.layer ? compileLayerRows(*c.layer, kCoresOfTarget, options)
                                       : compileRows(c.rows, kCoresOfTarget, options);
  if (!products) return products.error();
  GpuPrograms programs{std::move(*products), {}};
  if (!c.layer) return programs;
  Expected<Program> whole = compileLayer(*c.layer, kCoresOfTarget, options);
  if (!whole) return whole.error();
  programs.whole = std::move(*whole);
  return programs;
}

}  // namespace sluice::tools
