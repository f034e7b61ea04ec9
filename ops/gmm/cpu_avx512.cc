// Products for AVX-512 BF16.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_bf16.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/unit_avx512.h"

namespace sluice::ops::avx512 {

// Constant data: whoever reads it runs no code of this instruction set.
constinit const ProductKernels products = productsBy<UnitAvx512, PackBf16<UnitAvx512>>();

}  // namespace sluice::ops::avx512
