// gmm_weight_grad for any machine.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_f32.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/unit_portable.h"

namespace sluice::ops::portable {

void gmmWeightGrad(const GmmWeightGradArgs& args) { weightGradBy<UnitPortable, PackF32<UnitPortable>>(args); }

// The length of the sum is the expert's number of rows, which is unknown beforehand: room for many blocks.
size_t weightGradScratchBytes(int32_t m, int32_t n) {
  (void)m;
  return ScratchLayout<UnitPortable>::bytes(n, true);
}

}  // namespace sluice::ops::portable
