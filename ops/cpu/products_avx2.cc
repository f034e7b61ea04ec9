// Products for AVX2 and FMA.
#include "ops/cpu/groups_avx2.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_avx2.h"
#include "ops/cpu/pack_codes_avx2.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/unit_avx2.h"
#include "ops/cpu/unit_avx2_codes.h"

namespace sluice::ops::avx2 {

// Constant data: whoever reads it runs no code of this instruction set.
constinit const ProductKernels products =
    ProductsBy<UnitAvx2, PackAvx2<UnitAvx2>, UnitAvx2Codes, PackCodesAvx2<UnitAvx2Codes>, UnitAvx2Groups,
               PackCodesAvx2<UnitAvx2Groups>, NarrowUnitAvx2, PackAvx2<NarrowUnitAvx2>>::kAll;

}  // namespace sluice::ops::avx2
