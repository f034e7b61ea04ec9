// The compiler vectorizes these loops with glibc's vector expf, which -ffast-math permits; so this file has
// nothing else.
#include "tools/bench/peer_swiglu.h"

#include <cmath>

namespace sluice::tools {
namespace {

[[gnu::always_inline]] inline void swigluRows(const float* gateUp, float* act, int64_t rows, int64_t inter) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* const gate = gateUp + r * 2 * inter;
    const float* const up = gate + inter;
    float* const out = act + r * inter;
    for (int64_t i = 0; i < inter; ++i) out[i] = gate[i] * up[i] / (1 + std::exp(-gate[i]));
  }
}

[[gnu::always_inline]] inline void swigluGradRows(const float* actGrad, const float* gateUp,
                                                  float* gateUpGrad, int64_t rows, int64_t inter) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* const d = actGrad + r * inter;
    const float* const gate = gateUp + r * 2 * inter;
    const float* const up = gate + inter;
    float* const gateGrad = gateUpGrad + r * 2 * inter;
    float* const upGrad = gateGrad + inter;
    for (int64_t i = 0; i < inter; ++i) {
      const float sigmoid = 1 / (1 + std::exp(-gate[i]));
      const float silu = gate[i] * sigmoid;
      gateGrad[i] = d[i] * up[i] * (sigmoid + silu * (1 - sigmoid));
      upGrad[i] = d[i] * silu;
    }
  }
}

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void swigluAvx2(const float* gateUp, float* act, int64_t rows, int64_t inter) {
  swigluRows(gateUp, act, rows, inter);
}
[[gnu::target("avx2,fma")]] void swigluGradAvx2(const float* actGrad, const float* gateUp, float* gateUpGrad,
                                                int64_t rows, int64_t inter) {
  swigluGradRows(actGrad, gateUp, gateUpGrad, rows, inter);
}
bool hasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#endif

}  // namespace

void swiglu(const float* gateUp, float* act, int64_t rows, int64_t inter) {
#if defined(__x86_64__)
  if (hasAvx2()) return swigluAvx2(gateUp, act, rows, inter);
#endif
  swigluRows(gateUp, act, rows, inter);
}

void swigluGrad(const float* actGrad, const float* gateUp, float* gateUpGrad, int64_t rows, int64_t inter) {
#if defined(__x86_64__)
  if (hasAvx2()) return swigluGradAvx2(actGrad, gateUp, gateUpGrad, rows, inter);
#endif
  swigluGradRows(actGrad, gateUp, gateUpGrad, rows, inter);
}

}  // namespace sluice::tools
