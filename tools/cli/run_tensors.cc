#include "tools/cli/run_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
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

bool hasTokens(const Buffer& buffer) {
  return !buffer.shape.empty() && buffer.shape[0].extent == Extent::kTokens;
}

// The tokens and rows of one rank, from whatever shows them first.
class RankSizes {
 public:
  RankSizes(const TaskProgram& program, int rank, const std::vector<int64_t>& tokens)
      : program_(program), rank_(rank), hasIds_(hasExpertIds(program)) {
    if (tokens.empty()) return;
    tokens_ = {tokens[static_cast<size_t>(rank)], fmt::format("the tokens of rank {}", rank)};
    if (!hasIds_) rows_ = {rowsWithoutIds(program, rank, tokens), "those of the tokens of all ranks"};
  }

  Status add(const Buffer& buffer, const Tensor& tensor) {
    if (hasTokens(buffer)) return addTokens(buffer.name, tensor.shape()[0]);
    // rows of different routings may have different numbers
    return isRowTensor(buffer) && !hasIds_ ? addSize(rows_, buffer.name, tensor.shape()[0], "rows")
                                           : Status{};
  }
  Expected<int64_t> tokens() const {
    if (tokens_ || !rows_) return tokens_ ? tokens_->count : 0;
    Expected<int64_t> share = tokensOfRows(program_, rank_, rows_->count);
    if (share) return share;
    return Error{fmt::format("{}: {}", rows_->from, share.error().message)};
  }
  bool knowsTokens() const { return tokens_.has_value(); }

 private:
  struct Size {
    int64_t count;
    std::string from;  // as in an error
  };

  Status addTokens(const std::string& name, int64_t found) {
    if (found > program_.maxTokens)
      return Error{fmt::format("tensor '{}': found {} tokens, expected at most {}, the program's max_tokens",
                               name, found, program_.maxTokens)};
    return addSize(tokens_, name, found, "tokens");
  }
  Status addSize(std::optional<Size>& size, const std::string& name, int64_t found, std::string_view what) {
    if (size && found != size->count)
      return Error{fmt::format("tensor '{}': found {} {}, expected {}{} {}", name, found, what, size->count,
                               size->from.starts_with("tensor") ? " as in" : ",", size->from)};
    if (!size) size = {found, fmt::format("tensor '{}'", name)};
    return {};
  }

  const TaskProgram& program_;
  int rank_;
  bool hasIds_;
  std::optional<Size> tokens_, rows_;
};

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

EntryTensors listEntryTensors(const TaskProgram& program, const std::vector<EntryId>& entries) {
  std::set<BufferId> inputs, outputs;
  const auto add = [&](BufferId id) {
    if (id.none()) return;
    if (program.at(id).role == Role::kInput) inputs.insert(id);
    if (program.at(id).role == Role::kOutput) outputs.insert(id);
  };
  for (EntryId entry : entries) {
    add(program.at(entry).expertIds);
    add(program.at(entry).placement);
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
                              const TensorMap& tensors, const std::vector<int64_t>& tokens) {
  for (const auto& [name, tensor] : tensors) {
    const Buffer* given = findGiven(program, name);
    if (!given)
      return Error{fmt::format("tensor '{}' ({}) is no input of the program", name,
                               describeTensor(tensor.type(), tensor.shape()))};
    if (given->role != Role::kInput && !fits(program, rank, *given, tensor))
      return misfit(program, rank, *given, tensor);
  }
  RankSizes sizes(program, rank, tokens);
  for (BufferId id : inputs) {
    const Buffer& buffer = program.at(id);
    const auto it = tensors.find(buffer.name);
    if (it == tensors.end())
      return Error{fmt::format("tensor '{}' is missing, expected {}", buffer.name,
                               describeBuffer(program, rank, buffer))};
    if (!fits(program, rank, buffer, it->second)) return misfit(program, rank, buffer, it->second);
    if (Status status = sizes.add(buffer, it->second); !status) return status.error();
  }
  if (sizes.knowsTokens()) return sizes.tokens();
  // a tensor of tokens that only another entry reads shows T as well
  for (const auto& [name, tensor] : tensors)
    if (const Buffer& buffer = *findGiven(program, name);
        hasTokens(buffer) && fits(program, rank, buffer, tensor))
      if (Status status = sizes.add(buffer, tensor); !status) return status.error();
  return sizes.tokens();
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

double countFlops(const TaskProgram& program, EntryId entry, int64_t rows, int64_t tokens) {
  double flops = 0;
  for (const Family& family : program.families) {
    if (family.entry != entry) continue;
    const int64_t count = findInfo(program.at(family.space).kind).dense ? tokens : rows;
    flops += static_cast<double>(productFlops(family.op, family.tiling)) * static_cast<double>(count);
  }
  return flops;
}

}  // namespace sluice::tools
