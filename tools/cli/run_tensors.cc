#include "tools/cli/run_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "tools/cli/files.h"

namespace sluice::tools {
namespace {

bool isRowTensor(const Buffer& buffer) {
  return !buffer.shape.empty() && buffer.shape[0].extent == Extent::kRows;
}

const Buffer* findInput(const TaskProgram& program, const std::string& name) {
  for (const Buffer& buffer : program.buffers)
    if (buffer.role == Role::kInput && buffer.name == name) return &buffer;
  return nullptr;
}

// Whether the tensor fits the buffer for some T or R.
bool fits(const Buffer& buffer, const Tensor& tensor) {
  if (tensor.type() != buffer.type || tensor.shape().size() != buffer.shape.size()) return false;
  for (size_t i = 0; i < buffer.shape.size(); ++i)
    if (buffer.shape[i].extent == Extent::kFixed && buffer.shape[i].size != tensor.shape()[i]) return false;
  return true;
}

Status checkTokens(const TaskProgram& program, const Buffer& buffer, const Tensor& tensor,
                   const Buffer*& first, int64_t& tokens) {
  if (buffer.shape.empty() || buffer.shape[0].extent != Extent::kTokens) return {};
  const int64_t found = tensor.shape()[0];
  if (found > program.maxTokens)
    return Error{fmt::format("tensor '{}': found {} tokens, expected at most {}, the program's max_tokens",
                             buffer.name, found, program.maxTokens)};
  if (first && found != tokens)
    return Error{fmt::format("tensor '{}': found {} tokens, expected {} as in tensor '{}'", buffer.name,
                             found, tokens, first->name)};
  if (first) return {};
  first = &buffer;
  tokens = found;
  return {};
}

}  // namespace

Expected<std::vector<EntryId>> findEntries(const TaskProgram& program, std::string_view names) {
  std::vector<std::string> known;
  for (const Entry& entry : program.entries) known.push_back(entry.name);
  std::vector<EntryId> entries;
  for (const std::string& name : names.empty() ? known : splitList(names)) {
    const auto it = std::find(known.begin(), known.end(), name);
    if (it == known.end())
      return Error{fmt::format("found no entry '{}', expected one of {}", name, fmt::join(known, ", "))};
    entries.push_back({static_cast<uint32_t>(it - known.begin())});
  }
  return entries;
}

EntryTensors tensorsOf(const TaskProgram& program, const std::vector<EntryId>& entries) {
  std::set<BufferId> inputs, outputs;
  const auto add = [&](BufferId id) {
    if (id.none()) return;
    if (program.at(id).role == Role::kInput) inputs.insert(id);
    if (program.at(id).role == Role::kOutput) outputs.insert(id);
  };
  for (EntryId entry : entries) {
    add(program.at(entry).expertIds);
    for (const Family& family : program.families) {
      if (family.entry != entry) continue;
      std::for_each(family.reads.begin(), family.reads.end(), add);
      std::for_each(family.writes.begin(), family.writes.end(), add);
    }
  }
  return {{inputs.begin(), inputs.end()}, {outputs.begin(), outputs.end()}};
}

std::string describeBuffer(const Buffer& buffer) {
  std::vector<std::string> dims;
  for (const Dim& dim : buffer.shape) {
    constexpr const char* kNames[] = {"", "T", "R", "P"};
    dims.push_back(dim.extent == Extent::kFixed ? std::to_string(dim.size)
                                                : kNames[static_cast<size_t>(dim.extent)]);
  }
  return fmt::format("{} [{}]", dtypeName(buffer.type), fmt::join(dims, ", "));
}

Expected<int64_t> checkInputs(const TaskProgram& program, const std::vector<BufferId>& inputs,
                              const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors)
    if (!findInput(program, name))
      return Error{fmt::format("tensor '{}' ({}) is no input of the program", name,
                               describeTensor(tensor.type(), tensor.shape()))};
  const Buffer* first = nullptr;
  int64_t tokens = 0;
  for (BufferId id : inputs) {
    const Buffer& buffer = program.at(id);
    const auto it = tensors.find(buffer.name);
    if (it == tensors.end())
      return Error{fmt::format("tensor '{}' is missing, expected {}", buffer.name, describeBuffer(buffer))};
    if (!fits(buffer, it->second))
      return Error{fmt::format("tensor '{}': found {}, expected {}", buffer.name,
                               describeTensor(it->second.type(), it->second.shape()),
                               describeBuffer(buffer))};
    if (Status status = checkTokens(program, buffer, it->second, first, tokens); !status)
      return status.error();
  }
  return tokens;
}

TensorMap makeOutputs(const TaskProgram& program, const std::vector<BufferId>& outputs, int64_t tokens) {
  TensorMap map;
  for (BufferId id : outputs) {
    const Buffer& buffer = program.at(id);
    if (isRowTensor(buffer)) continue;
    std::vector<int64_t> shape;
    for (const Dim& dim : buffer.shape) shape.push_back(dim.extent == Extent::kFixed ? dim.size : tokens);
    map.emplace(buffer.name, Tensor(buffer.type, std::move(shape)));
  }
  return map;
}

int64_t flopsPerRow(const TaskProgram& program, EntryId entry) {
  int64_t flops = 0;
  for (const Family& family : program.families) {
    if (family.entry != entry) continue;
    const Tiling& t = family.tiling;
    if (family.op == OpKind::kGmm) flops += 2 * int64_t{t.n} * t.k;
    if (family.op == OpKind::kGmmWeightGrad) flops += 2 * int64_t{t.m} * t.n;
  }
  return flops;
}

}  // namespace sluice::tools
