// Products of codes for AVX-VNNI, real or emulated (unit_avxvnni_codes.h).
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_codes_avx2.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/unit_avxvnni_codes.h"

namespace sluice::ops::SLUICE_AVXVNNI_NAMESPACE {

// Constant data: whoever reads it runs no code of this instruction set.
constinit const GmmKernels codeProducts[2] = {
    kCodesGmm<UnitAvxVnniCodes, PackCodesAvx2<UnitAvxVnniCodes>>,
    kGroupsGmm<UnitAvxVnniGroups, PackCodesAvx2<UnitAvxVnniGroups>>};

}  // namespace sluice::ops::SLUICE_AVXVNNI_NAMESPACE
