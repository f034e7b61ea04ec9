// Which kernels are chosen, and the errors for those that cannot be chosen.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "runtime/abi/kernels.h"

namespace sluice::ops {
namespace {

// Sets SLUICE_ISA for one scope.
class ForcedIsa {
 public:
  explicit ForcedIsa(const char* value) {
    if (value == nullptr)
      unsetenv("SLUICE_ISA");
    else
      setenv("SLUICE_ISA", value, 1);
  }
  ~ForcedIsa() { unsetenv("SLUICE_ISA"); }
};

constexpr Isa kAll[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Bf16, Isa::kAmx};

bool isSupported(Isa isa) {
  const std::vector<Isa> supported = supportedIsas();
  return std::find(supported.begin(), supported.end(), isa) != supported.end();
}

TEST_CASE("the name of every instruction set leads back to it") {
  for (Isa isa : kAll) CHECK(isaFromName(isaName(isa)) == isa);
  CHECK(isaName(Isa::kAvx512Bf16) == "avx512");
  CHECK(!isaFromName("AVX2"));
  CHECK(!isaFromName(""));
}

TEST_CASE("portable kernels are always supported, and sets are listed best last") {
  const std::vector<Isa> supported = supportedIsas();
  REQUIRE(!supported.empty());
  CHECK(supported.front() == Isa::kPortable);
  CHECK(std::is_sorted(supported.begin(), supported.end()));
}

TEST_CASE("without SLUICE_ISA, or with an empty one, the best kernels are chosen") {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    ForcedIsa forced(value);
    Expected<const KernelSet*> kernels = selectKernels();
    REQUIRE(kernels.ok());
    CHECK((*kernels)->isa == supportedIsas().back());
  }
}

TEST_CASE("SLUICE_ISA forces a set the machine has, and names those it has where it lacks the forced one") {
  for (Isa isa : kAll) {
    ForcedIsa forced(std::string(isaName(isa)).c_str());
    Expected<const KernelSet*> kernels = selectKernels();
    INFO(isaName(isa));
    if (isSupported(isa)) {
      REQUIRE(kernels.ok());
      CHECK((*kernels)->isa == isa);
      CHECK(!(*kernels)->gmms.empty());
      continue;
    }
    if (isa == Isa::kAmx) WARN("skipped: no AMX");
    REQUIRE(!kernels.ok());
    CHECK_THAT(kernels.error().message,
               Catch::Contains("cannot run the " + std::string(isaName(isa)) + " kernels"));
    CHECK_THAT(kernels.error().message, Catch::Contains("it supports portable"));
    CHECK(!kernelsFor(isa).ok());
  }
}

TEST_CASE("a SLUICE_ISA that names nothing is an error that lists the names") {
  ForcedIsa forced("sse9");
  Expected<const KernelSet*> kernels = selectKernels();
  REQUIRE(!kernels.ok());
  CHECK_THAT(kernels.error().message,
             Catch::StartsWith(
                 "SLUICE_ISA is 'sse9', expected one of portable, avx2, avxvnni, avx512, amx; this machine "
                 "supports portable"));
}

}  // namespace
}  // namespace sluice::ops
