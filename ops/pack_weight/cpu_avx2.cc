// Packing of weights for AVX2 and FMA.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_f32.h"
#include "ops/cpu/packed_weight.h"
#include "ops/cpu/unit_avx2.h"

namespace sluice::ops::avx2 {

size_t packedWeightBytes(int32_t n, int32_t k) { return packedBytesBy<UnitAvx2>(n, k); }

void packWeight(const PackWeightArgs& args) { packWeightBy<UnitAvx2, PackF32<UnitAvx2>>(args); }

}  // namespace sluice::ops::avx2
