#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ops/torch/layer_signature.h"

namespace sluice {
namespace {

// A JSON string. Names in a program file may contain any bytes: each byte that is not plain ASCII is escaped.
std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c >= 0x20 && c < 0x7f) {
      result += c;
    } else {
      result += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    }
  }
  return result + '"';
}

std::string_view roleName(Role role) { return role == Role::kInput ? "input" : "output"; }

std::string describeTensor(const TaskProgram& program, int rank, const Buffer& buffer) {
  std::vector<std::string> dims;
  for (const Dim& dim : buffer.shape) {
    const bool tokens = dim.extent == Extent::kTokens;
    const bool atRunTime = tokens || dim.extent == Extent::kRows;
    dims.push_back(atRunTime ? quoted(tokens ? "T" : "R") : std::to_string(program.sizeAt(rank, dim, 0)));
  }
  return fmt::format(R"({{"name": {}, "type": "{}", "shape": [{}], "role": "{}"}})", quoted(buffer.name),
                     dtypeName(buffer.type), fmt::join(dims, ", "), roleName(buffer.role));
}

std::string names(const TaskProgram& program, EntryId entry, Role role) {
  std::vector<std::string> result;
  for (BufferId id : callersTensors(program, entry, role)) result.push_back(quoted(program.at(id).name));
  return fmt::format("[{}]", fmt::join(result, ", "));
}

}  // namespace

std::string describeProgram(const TaskProgram& program, int rank) {
  std::vector<std::string> entries, tensors;
  for (uint32_t e = 0; e < program.entries.size(); ++e)
    entries.push_back(fmt::format(R"({{"name": {}, "inputs": {}, "outputs": {}}})",
                                  quoted(program.entries[e].name), names(program, EntryId{e}, Role::kInput),
                                  names(program, EntryId{e}, Role::kOutput)));
  for (const Buffer& buffer : program.buffers)
    if (buffer.role == Role::kInput || buffer.role == Role::kOutput)
      tensors.push_back(describeTensor(program, rank, buffer));
  return fmt::format(
      R"({{"name": {}, "target": {}, "ranks": {}, "experts": {}, "experts_of_rank": {}, "top_k": {}, )"
      R"("max_tokens": {}, "entries": [{}], "tensors": [{}]}})",
      quoted(program.name), quoted(program.target), program.mesh.peers(), program.experts,
      program.countExperts(rank), program.topK, program.maxTokens, fmt::join(entries, ", "),
      fmt::join(tensors, ", "));
}

}  // namespace sluice
