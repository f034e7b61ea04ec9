// The text form of programs, as `sluice as` takes it.
#include "runtime/program/text.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/program_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const Expected<TaskProgram> program = parseProgram(fuzz::textOf(data, size), "text");
  if (program)
    fuzz::requireProgram(*program);
  else
    fuzz::requireMessage(program.error().message, "text:");
  return 0;
}
