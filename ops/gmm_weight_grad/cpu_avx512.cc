// gmm_weight_grad for AVX-512 BF16.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_bf16.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/unit_avx512.h"

namespace sluice::ops::avx512 {

void gmmWeightGrad(const GmmWeightGradArgs& args) { weightGradBy<UnitAvx512, PackBf16<UnitAvx512>>(args); }

// The length of the sum is the expert's number of rows, which is unknown beforehand: room for many blocks.
size_t weightGradScratchBytes(int32_t m, int32_t n) {
  (void)m;
  return ScratchLayout<UnitAvx512>::bytes(n, true);
}

}  // namespace sluice::ops::avx512
