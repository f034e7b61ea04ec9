// gpu_check on the hardware model, of which SLUICE_TEST_FAULT breaks a fact (model_machine.h).
#include <cstdio>
#include <cstdlib>

#include "tests/tools/gpu_check/model_machine.h"
#include "tools/gpu_check/checks.h"

int main(int argc, char** argv) {
  using namespace sluice::tools;
  const char* const given = std::getenv("SLUICE_TEST_FAULT");
  const std::string fault = given == nullptr ? "" : given;
  if (const sluice::Status known = checkFault(fault); !known) {
    std::fprintf(stderr, "%s\n", known.error().message.c_str());
    return 2;
  }
  return runGpuCheck(argc, argv, [&](const std::string& /*device*/) { return modelMachineWith(fault); });
}
