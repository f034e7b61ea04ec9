// Products for any machine.
#include "ops/cpu/kernel_functions.h"
#include "ops/cpu/pack_f32.h"
#include "ops/cpu/product_kernels.h"
#include "ops/cpu/unit_portable.h"

namespace sluice::ops::portable {

// Constant data: whoever reads it runs no code of this instruction set.
constinit const ProductKernels products =
    ProductsBy<UnitPortable, PackF32<UnitPortable>, UnitExact<UnitPortable>, PackF32<UnitPortable>,
               UnitExact<UnitPortable>, PackF32<UnitPortable>>::kAll;

}  // namespace sluice::ops::portable
