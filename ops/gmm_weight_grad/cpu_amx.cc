// gmm_weight_grad for AMX bf16, real or emulated (see amx_tile.h).
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_bf16.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/unit_amx.h"

namespace sluice::ops::SLUICE_AMX_NAMESPACE {

void gmmWeightGrad(const GmmWeightGradArgs& args) { weightGradBy<UnitAmx, PackBf16<UnitAmx>>(args); }

// The length of the sum is the expert's number of rows, which is unknown beforehand: room for many blocks.
size_t weightGradScratchBytes(int32_t m, int32_t n) {
  (void)m;
  return ScratchLayout<UnitAmx>::bytes(n, true);
}

}  // namespace sluice::ops::SLUICE_AMX_NAMESPACE
