#include "runtime/api/program.h"

#include <fmt/format.h>

#include "runtime/program/codec.h"

namespace sluice {

int64_t TensorView::elements() const {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

Expected<Program> Program::load(const std::string& path) {
  auto program = readProgram(path);
  if (!program) return program.error();
  auto verified = fromTaskProgram(std::move(*program));
  if (!verified) return Error{fmt::format("{}: error: {}", path, verified.error().message)};
  return verified;
}

Expected<Program> Program::fromBytes(std::span<const std::byte> bytes) {
  auto program = decode(bytes);
  if (!program) return program.error();
  return fromTaskProgram(std::move(*program));
}

Expected<Program> Program::fromTaskProgram(TaskProgram program) {
  auto verified = verify(std::move(program));
  if (!verified) return verified.error();
  Program result;
  result.verified_ = std::make_shared<const VerifiedProgram>(std::move(*verified));
  return result;
}

}  // namespace sluice
