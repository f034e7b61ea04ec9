#include "tests/ops/testing/kernel_testing.h"

#include "ops/cpu/kernel_functions.h"

namespace sluice::ops {

std::vector<Implementation> implementations() {
  std::vector<Implementation> all;
  const auto addProducts = [&all](const char* name, const ProductKernels& products) {
    Implementation other = all.front();
    other.name = name;
    static_cast<ProductKernels&>(other.kernels) = products;
    other.multipliesBf16 = true;
    all.push_back(other);
  };
  for (Isa isa : supportedIsas()) {
    const bool bf16 = isa == Isa::kAvx512Bf16 || isa == Isa::kAmx;
    all.push_back({std::string(isaName(isa)), **kernelsFor(isa), bf16});
    if (isa == Isa::kAvx2) {
      static const std::vector<GmmKernels> gmms =
          replaceProducts(avx2::products.gmms, avxvnni_emulated::codeProducts);
      all.push_back({"emulated avxvnni", all.back().kernels, bf16});
      all.back().kernels.gmms = gmms;
    }
#ifdef SLUICE_TEST_OTHER_WIDTH
    if (isa == Isa::kAvx512Bf16) addProducts("avx512 of the other width", avx512_other_width::products);
#endif
  }
  addProducts("emulated amx", amx_emulated::products);
  return all;
}

}  // namespace sluice::ops
