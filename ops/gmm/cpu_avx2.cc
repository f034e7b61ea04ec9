// gmm for AVX2 and FMA.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_f32.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/unit_avx2.h"

namespace sluice::ops::avx2 {

void gmm(const GmmArgs& args) { gmmBy<UnitAvx2, PackF32<UnitAvx2>>(args); }

size_t gmmScratchBytes(int32_t n, int32_t k) { return gmmScratchBytesBy<UnitAvx2>(n, k); }

}  // namespace sluice::ops::avx2
