// Products for AMX bf16, real or emulated (see amx_tile.h).
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_bf16.h"
#include "ops/cpu/pack_codes.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/unit_amx.h"

namespace sluice::ops::SLUICE_AMX_NAMESPACE {

// Constant data: whoever reads it runs no code of this instruction set.
constinit const ProductKernels products =
    ProductsBy<UnitAmx, PackBf16<UnitAmx>, UnitAmxCodes, PackCodes<UnitAmxCodes>, UnitAmxCodes,
               PackCodes<UnitAmxCodes>>::kAll;

}  // namespace sluice::ops::SLUICE_AMX_NAMESPACE
