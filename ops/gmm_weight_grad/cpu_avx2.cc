// gmm_weight_grad for AVX2 and FMA.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_f32.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/unit_avx2.h"

namespace sluice::ops::avx2 {

void gmmWeightGrad(const GmmWeightGradArgs& args) { weightGradBy<UnitAvx2, PackF32<UnitAvx2>>(args); }

// The length of the sum is the expert's number of rows, which is unknown beforehand: room for many blocks.
size_t weightGradScratchBytes(int32_t m, int32_t n) {
  (void)m;
  return ScratchLayout<UnitAvx2>::bytes(n, true);
}

}  // namespace sluice::ops::avx2
