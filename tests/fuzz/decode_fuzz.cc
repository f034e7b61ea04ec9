#include "tests/fuzz/decode_fuzz.h"

#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "runtime/program/codec.h"
#include "runtime/program/program_generated.h"
#include "runtime/program/seal.h"
#include "runtime/program/text.h"
#include "runtime/program/verify.h"

namespace sluice {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// Else hardly any input would get behind the checksum.
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
  if (!program.ok()) return 0;
  const Expected<TaskProgram> again = decode(encode(*program));
  require(again.ok() && *again == *program);
  const Expected<TaskProgram> parsed = parseProgram(printProgram(*program), "text");
  require(parsed.ok() && *parsed == *program);
  const Expected<VerifiedProgram> verified = verify(*program);
  require(verified.ok() || !verified.error().message.empty());
  return 0;
}
