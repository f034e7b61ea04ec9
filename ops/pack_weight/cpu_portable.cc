// Packing of weights for any machine.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_f32.h"
#include "ops/cpu/packed_weight.h"
#include "ops/cpu/unit_portable.h"

namespace sluice::ops::portable {

size_t packedWeightBytes(int32_t n, int32_t k) { return packedBytesBy<UnitPortable>(n, k); }

void packWeight(const PackWeightArgs& args) { packWeightBy<UnitPortable, PackF32<UnitPortable>>(args); }

}  // namespace sluice::ops::portable
