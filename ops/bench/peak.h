// The register peaks bench_kernels compares against: loops of nothing but multiply-adds that do not wait for
// each other. Each returns the floating-point operations it did (a multiply-add is two).
#pragma once

#include <cstdint>

namespace sluice::ops {

double runPortablePeak(int64_t loops);  // vectors of four, multiplied and added
double runAvx2FmaPeak(int64_t loops);
double runAvx512DotPeak(int64_t loops);  // vdpbf16ps
double runAmxDotPeak(int64_t loops);     // tdpbf16ps

}  // namespace sluice::ops
