// Safetensors files: what is read can be written and reads again to the same tensors.
#include <cstring>
#include <string>

#include "tests/fuzz/fuzz.h"
#include "tools/io/safetensors.h"

namespace sluice {
namespace {

bool same(const tools::TensorMap& a, const tools::TensorMap& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.type() != tensor.type() || other->second.shape() != tensor.shape())
      return false;
    const auto bytes = static_cast<size_t>(tensor.bytes());
    if (bytes > 0 && std::memcmp(tensor.data(), other->second.data(), bytes) != 0) return false;
  }
  return true;
}

void tryFile(std::string_view bytes) {
  static const fuzz::ScratchFile in(".safetensors"), out(".safetensors");
  in.write(bytes);
  const Expected<tools::TensorMap> tensors = tools::readSafetensors(in.path());
  if (!tensors) return fuzz::requireMessage(tensors.error().message, in.path() + ": ");
  fuzz::require(tools::writeSafetensors(out.path(), *tensors).ok(), "tensors that were read can be written");
  const Expected<tools::TensorMap> again = tools::readSafetensors(out.path());
  fuzz::require(again.ok() && same(*tensors, *again), "tensors are written and read as they are");
}

// The file with the size of its header set to where the last '}' stands: else hardly any input whose header
// changed in length would be looked at.
std::string withSize(std::string_view bytes) {
  std::string text(bytes);
  const size_t end = text.rfind('}');
  if (end == text.npos || end < 8) return text;
  for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>((end - 7) >> (8 * i) & 0xff);
  return text;
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view bytes = fuzz::textOf(data, size);
  tryFile(bytes);
  if (const std::string corrected = withSize(bytes); corrected != bytes) tryFile(corrected);
  return 0;
}
