// Program files: decode, then all that a program that decodes must do.
#include <cstring>
#include <span>
#include <vector>

#include "runtime/program/codec.h"
#include "runtime/program/program_generated.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/program_checks.h"

namespace sluice {
namespace {

// Else hardly any input would get past the checksum.
void correctSeal(std::span<std::byte> bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size(), 2, 2);
  if (bytes.size() < 8 || !verifier.VerifyBuffer<fbs::Sealed>(fbs::ProgramIdentifier())) return;
  if (flatbuffers::GetRoot<fbs::Sealed>(data)->seal()) sealFile(bytes);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  correctSeal(bytes);
  const Expected<TaskProgram> program = decode(bytes);
  if (program)
    fuzz::requireProgram(*program);
  else
    fuzz::requireMessage(program.error().message, "");
  return 0;
}
