// The register peaks that measurements are compared with: loops of independent multiply-adds and nothing
// else. Each returns the number of floating-point operations that it did (a multiply-add is two).
#pragma once

#include <cstdint>

#include "runtime/abi/kernels.h"

namespace sluice::ops {

// The loop of the instruction set, for products of bf16 or of codes.
double runPeak(Isa isa, int64_t loops);
double runCodesPeak(Isa isa, int64_t loops);

double runPortablePeak(int64_t loops);  // vectors of four, multiplied and added
double runAvx2FmaPeak(int64_t loops);
double runAvx2CodesPeak(int64_t loops);     // vpmaddwd and an addition
double runAvxVnniCodesPeak(int64_t loops);  // vpdpbusd
double runAvx512DotPeak(int64_t loops);     // vdpbf16ps
double runAvx512CodesPeak(int64_t loops);   // vpdpbusd
double runAmxDotPeak(int64_t loops);        // tdpbf16ps
double runAmxCodesPeak(int64_t loops);      // tdpbssd

}  // namespace sluice::ops
