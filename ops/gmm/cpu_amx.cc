// gmm for AMX bf16, real or emulated (see amx_tile.h).
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_bf16.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/unit_amx.h"

namespace sluice::ops::SLUICE_AMX_NAMESPACE {

void gmm(const GmmArgs& args) { gmmBy<UnitAmx, PackBf16<UnitAmx>>(args); }

size_t gmmScratchBytes(int32_t n, int32_t k) { return gmmScratchBytesBy<UnitAmx>(n, k); }

}  // namespace sluice::ops::SLUICE_AMX_NAMESPACE
