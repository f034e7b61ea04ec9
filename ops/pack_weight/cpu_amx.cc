// Packing of weights for AMX bf16, real or emulated (see amx_tile.h).
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_bf16.h"
#include "ops/cpu/packed_weight.h"
#include "ops/cpu/unit_amx.h"

namespace sluice::ops::SLUICE_AMX_NAMESPACE {

size_t packedWeightBytes(int32_t n, int32_t k) { return packedBytesBy<UnitAmx>(n, k); }

void packWeight(const PackWeightArgs& args) { packWeightBy<UnitAmx, PackBf16<UnitAmx>>(args); }

}  // namespace sluice::ops::SLUICE_AMX_NAMESPACE
