// gmm for AVX-512 BF16.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_bf16.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/unit_avx512.h"

namespace sluice::ops::avx512 {

void gmm(const GmmArgs& args) { gmmBy<UnitAvx512, PackBf16<UnitAvx512>>(args); }

size_t gmmScratchBytes(int32_t n, int32_t k) { return gmmScratchBytesBy<UnitAvx512>(n, k); }

}  // namespace sluice::ops::avx512
