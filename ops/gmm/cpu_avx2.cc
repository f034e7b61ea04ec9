// Products for AVX2 and FMA.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_f32.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/unit_avx2.h"

namespace sluice::ops::avx2 {

// Constant data: whoever reads it runs no code of this instruction set.
constinit const ProductKernels products = productsBy<UnitAvx2, PackF32<UnitAvx2>>();

}  // namespace sluice::ops::avx2
