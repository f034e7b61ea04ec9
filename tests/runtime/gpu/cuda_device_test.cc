// Devices by name. What a machine without a GPU says is tested where there is none.
#include <catch2/catch.hpp>

#include "runtime/api/make_device.h"

namespace sluice {
namespace {

std::string errorOf(std::string_view name, int ranks = 1) {
  const auto device = makeDevice(name, ranks);
  return device ? "" : device.error().message;
}

TEST_CASE("cpu is CPU threads, and another name than those of GPUs is an error") {
  const auto cpu = makeDevice("cpu", 3);
  REQUIRE(cpu);
  CHECK(!*cpu);
  for (const char* name :
       {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999999999", "cuda0", "CUDA"})
    CHECK(errorOf(name) == "device '" + std::string(name) + "': expected cpu, cuda or cuda:N");
}

TEST_CASE("a GPU that is not there is an error that says why") {
  const std::string error = errorOf("cuda:1000");
  INFO(error);
  CHECK(error.starts_with("device 'cuda:1000': "));
  const bool isBuilt = error.find("Sluice was built without CUDA: nvcc was not found") == std::string::npos;
  // of the driver, or of the number of devices
  if (isBuilt) CHECK(error.find("CUDA") != std::string::npos);
}

}  // namespace
}  // namespace sluice
