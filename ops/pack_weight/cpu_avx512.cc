// Packing of weights for AVX-512 BF16.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_bf16.h"
#include "ops/cpu/packed_weight.h"
#include "ops/cpu/unit_avx512.h"

namespace sluice::ops::avx512 {

size_t packedWeightBytes(int32_t n, int32_t k) { return packedBytesBy<UnitAvx512>(n, k); }

void packWeight(const PackWeightArgs& args) { packWeightBy<UnitAvx512, PackBf16<UnitAvx512>>(args); }

}  // namespace sluice::ops::avx512
