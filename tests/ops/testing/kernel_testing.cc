#include "tests/ops/testing/kernel_testing.h"

#include "ops/cpu/kernel_functions.h"

namespace sluice::ops {

std::vector<Implementation> implementations() {
  std::vector<Implementation> all;
  for (Isa isa : supportedIsas()) {
    const bool bf16 = isa == Isa::kAvx512Bf16 || isa == Isa::kAmx;
    all.push_back({std::string(isaName(isa)), **kernelsFor(isa), bf16});
  }
  Implementation emulated = all.front();
  emulated.name = "emulated amx";
  static_cast<ProductKernels&>(emulated.kernels) = amx_emulated::products;
  emulated.multipliesBf16 = true;
  all.push_back(emulated);
  return all;
}

}  // namespace sluice::ops
