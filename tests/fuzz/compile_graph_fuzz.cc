// Graph files through the whole compiler.
#include "tests/fuzz/compile_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const sluice::fuzz::ScratchFile file(".json");
  sluice::fuzz::requireCompilation(file, sluice::fuzz::textOf(data, size));
  return 0;
}
