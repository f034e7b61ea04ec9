// gmm for any machine.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_f32.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/unit_portable.h"

namespace sluice::ops::portable {

void gmm(const GmmArgs& args) { gmmBy<UnitPortable, PackF32<UnitPortable>>(args); }

size_t gmmScratchBytes(int32_t n, int32_t k) { return gmmScratchBytesBy<UnitPortable>(n, k); }

}  // namespace sluice::ops::portable
