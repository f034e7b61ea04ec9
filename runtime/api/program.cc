#include "runtime/api/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/program/codec.h"

namespace sluice {
namespace {

// `rank`: whose sizes the text has.
std::string dimText(const TaskProgram& program, int rank, const Dim& dim) {
  switch (dim.extent) {
    case Extent::kFixed:
      return std::to_string(dim.size);
    case Extent::kTokens:
      return "T";
    case Extent::kRows:
      return "R";
    case Extent::kPairs:
      return "P";
    case Extent::kExperts:
      return std::to_string(program.countExperts(rank));
  }
  return "?";
}

std::string shapeText(const TaskProgram& program, int rank, const std::vector<Dim>& shape) {
  std::vector<std::string> dims;
  for (const Dim& dim : shape) dims.push_back(dimText(program, rank, dim));
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

bool fits(const TaskProgram& program, int rank, const Dim& dim, int64_t size) {
  if (dim.extent == Extent::kFixed) return size == dim.size;
  return dim.extent == Extent::kExperts ? size == program.countExperts(rank) : size >= 0;
}

}  // namespace

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

std::optional<BufferId> findBindable(const TaskProgram& program, std::string_view name) {
  for (uint32_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.name == name && (buffer.role == Role::kInput || buffer.role == Role::kOutput))
      return BufferId{b};
  }
  return std::nullopt;
}

Error unknownBindable(const TaskProgram& program, std::string_view name) {
  std::vector<std::string> known;
  for (const Buffer& buffer : program.buffers)
    if (buffer.role == Role::kInput || buffer.role == Role::kOutput) known.push_back(buffer.name);
  return Error{
      fmt::format("the program has no tensor '{}', expected one of: {}", name, fmt::join(known, ", "))};
}

Status checkBindable(const TaskProgram& program, int rank, const Buffer& buffer, const TensorView& tensor) {
  if (tensor.type != buffer.type)
    return Error{fmt::format("tensor '{}' has type {}, expected {}", buffer.name, dtypeName(tensor.type),
                             dtypeName(buffer.type))};
  bool all = tensor.shape.size() == buffer.shape.size();
  for (size_t d = 0; all && d < tensor.shape.size(); ++d)
    all = fits(program, rank, buffer.shape[d], tensor.shape[d]);
  if (!all) {
    const bool ofRank = buffer.shape.front().extent == Extent::kExperts;
    return Error{fmt::format("tensor '{}' has shape [{}], expected {}{}", buffer.name,
                             fmt::join(tensor.shape, ", "), shapeText(program, rank, buffer.shape),
                             ofRank ? fmt::format(" at rank {}", rank) : "")};
  }
  if (buffer.shape.front().extent == Extent::kTokens && tensor.shape[0] > program.maxTokens)
    return Error{fmt::format("tensor '{}' has {} tokens, but the program was compiled for at most {}",
                             buffer.name, tensor.shape[0], program.maxTokens)};
  if (!tensor.data && tensor.elements() > 0)
    return Error{fmt::format("tensor '{}' has no data", buffer.name)};
  const auto size = static_cast<uintptr_t>(dtypeBytes(tensor.type));
  if (const uintptr_t more = reinterpret_cast<uintptr_t>(tensor.data) % size; more > 0)
    return Error{fmt::format(
        "tensor '{}' begins {} bytes after a multiple of {}, expected a multiple of the element size",
        buffer.name, more, size)};
  return {};
}

}  // namespace sluice
