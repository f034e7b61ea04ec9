#include "tools/cli/run_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"
#include "runtime/program/words.h"
#include "tools/cli/files.h"

namespace sluice::tools {
namespace {

bool isRowTensor(const Buffer& buffer) {
  return !buffer.shape.empty() && buffer.shape[0].extent == Extent::kRows;
}

// What a file may contain: an input, or the start of a gradient that a run adds to. Null: neither.
const Buffer* findGiven(const TaskProgram& program, const std::string& name) {
  for (uint32_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    if (buffer.name == name && (buffer.role == Role::kInput || isAccumulated(program, {i}))) return &buffer;
  }
  return nullptr;
}

// Whether the tensor fits the buffer for some T or R.
bool fits(const TaskProgram& program, int rank, const Buffer& buffer, const Tensor& tensor) {
  if (tensor.type() != buffer.type || tensor.shape().size() != buffer.shape.size()) return false;
  for (size_t i = 0; i < buffer.shape.size(); ++i) {
    const int64_t found = tensor.shape()[i];
    if (program.sizeAt(rank, buffer.shape[i], found, found) != found) return false;
  }
  return true;
}

Error misfit(const TaskProgram& program, int rank, const Buffer& buffer, const Tensor& tensor) {
  return Error{fmt::format("tensor '{}': found {}, expected {}", buffer.name,
                           describeTensor(tensor.type(), tensor.shape()),
                           describeBuffer(program, rank, buffer))};
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

std::string describeBuffer(const TaskProgram& program, int rank, const Buffer& buffer) {
  std::vector<std::string> dims;
  for (const Dim& dim : buffer.shape) {
    const bool known = dim.extent == Extent::kFixed || dim.extent == Extent::kExperts;
    dims.push_back(known ? std::to_string(program.sizeAt(rank, dim, 0)) : text::word(dim.extent));
  }
  return fmt::format("{} [{}]", dtypeName(buffer.type), fmt::join(dims, ", "));
}

Expected<int64_t> checkInputs(const TaskProgram& program, int rank, const std::vector<BufferId>& inputs,
                              const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) {
    const Buffer* given = findGiven(program, name);
    if (!given)
      return Error{fmt::format("tensor '{}' ({}) is no input of the program", name,
                               describeTensor(tensor.type(), tensor.shape()))};
    if (given->role != Role::kInput && !fits(program, rank, *given, tensor))
      return misfit(program, rank, *given, tensor);
  }
  const Buffer* first = nullptr;
  int64_t tokens = 0;
  for (BufferId id : inputs) {
    const Buffer& buffer = program.at(id);
    const auto it = tensors.find(buffer.name);
    if (it == tensors.end())
      return Error{fmt::format("tensor '{}' is missing, expected {}", buffer.name,
                               describeBuffer(program, rank, buffer))};
    if (!fits(program, rank, buffer, it->second)) return misfit(program, rank, buffer, it->second);
    if (Status status = checkTokens(program, buffer, it->second, first, tokens); !status)
      return status.error();
  }
  return tokens;
}

Status checkOutputs(const TaskProgram& program, int rank, int64_t tokens, const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) {
    const auto it = std::find_if(program.buffers.begin(), program.buffers.end(), [&](const Buffer& buffer) {
      return buffer.role == Role::kOutput && buffer.name == name;
    });
    if (it == program.buffers.end())
      return Error{fmt::format("tensor '{}' ({}) is no output of the program", name,
                               describeTensor(tensor.type(), tensor.shape()))};
    std::vector<int64_t> expected;
    const int64_t rows = tensor.shape().empty() ? 0 : tensor.shape()[0];  // of any routing
    for (const Dim& dim : it->shape) expected.push_back(program.sizeAt(rank, dim, tokens, rows));
    if (tensor.type() != it->type || tensor.shape() != expected)
      return Error{fmt::format("tensor '{}': found {}, expected {}", name,
                               describeTensor(tensor.type(), tensor.shape()),
                               describeTensor(it->type, expected))};
  }
  return {};
}

TensorMap makeOutputs(const TaskProgram& program, int rank, const std::vector<BufferId>& outputs,
                      int64_t tokens) {
  TensorMap map;
  for (BufferId id : outputs) {
    const Buffer& buffer = program.at(id);
    if (isRowTensor(buffer)) continue;
    std::vector<int64_t> shape;
    for (const Dim& dim : buffer.shape) shape.push_back(program.sizeAt(rank, dim, tokens));
    map.emplace(buffer.name, Tensor(buffer.type, std::move(shape)));
  }
  return map;
}

void copyStarts(const TaskProgram& program, const TensorMap& file, TensorMap& outputs) {
  for (uint32_t i = 0; i < program.buffers.size(); ++i) {
    const std::string& name = program.buffers[i].name;
    const auto output = outputs.find(name);
    if (output == outputs.end() || !isAccumulated(program, {i})) continue;
    Tensor& tensor = output->second;
    const auto start = file.find(name);
    if (start != file.end())
      std::memcpy(tensor.data(), start->second.data(), static_cast<size_t>(tensor.bytes()));
    else
      std::memset(tensor.data(), 0, static_cast<size_t>(tensor.bytes()));
  }
}

InputsSpec inputsSpec(const TaskProgram& program, const std::string& tokens, const std::string& routing,
                      uint64_t seed) {
  InputsSpec spec;
  spec.tokens.most = program.maxTokens;
  if (!tokens.empty()) spec.tokens = *parseTokens(tokens);
  spec.routing = *parseRouting(routing);
  spec.seed = seed;
  return spec;
}

double flopsOf(const TaskProgram& program, EntryId entry, int64_t rows, int64_t tokens) {
  double flops = 0;
  for (const Family& family : program.families) {
    if (family.entry != entry) continue;
    const int64_t count = infoOf(program.at(family.space).kind).dense ? tokens : rows;
    flops += static_cast<double>(productFlops(family.op, family.tiling)) * static_cast<double>(count);
  }
  return flops;
}

}  // namespace sluice::tools
