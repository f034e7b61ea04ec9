// Products for AVX-512 BF16.
#include "ops/cpu/groups_avx512.h"
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_bf16.h"
#include "ops/cpu/pack_codes.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/unit_avx512.h"

namespace sluice::ops::SLUICE_AVX512_NAMESPACE {

// Constant data: whoever reads it runs no code of this instruction set.
constinit const ProductKernels products =
    ProductsBy<UnitAvx512, PackBf16<UnitAvx512>, UnitAvx512Codes, PackCodes<UnitAvx512Codes>,
               UnitAvx512Groups, PackCodes<UnitAvx512Groups>>::kAll;

}  // namespace sluice::ops::SLUICE_AVX512_NAMESPACE
