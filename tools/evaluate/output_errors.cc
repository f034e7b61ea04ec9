#include "tools/evaluate/output_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tools/evaluate/evaluate.h"

namespace sluice::tools {
namespace {

bool isOutput(const TaskProgram& program, const std::string& name) {
  return std::any_of(program.buffers.begin(), program.buffers.end(), [&](const Buffer& buffer) {
    return buffer.role == Role::kOutput && buffer.name == name;
  });
}

Status compareShape(size_t rank, const Buffer& buffer, const Tensor& found, const Values& expected) {
  if (found.type() == buffer.type && found.shape() == expected.shape) return {};
  return Error{fmt::format("rank {}: tensor '{}': found {}, expected {}", rank, buffer.name,
                           describeTensor(found.type(), found.shape()),
                           describeTensor(buffer.type, expected.shape))};
}

}  // namespace

std::vector<EntryId> entriesFor(const TaskProgram& program, const TensorMap& outputs) {
  std::vector<EntryId> entries;
  std::set<BufferId> read;  // by the entries taken so far, which are later ones
  for (auto i = static_cast<uint32_t>(program.entries.size()); i-- > 0;) {
    const auto isWanted = [&](BufferId id) {
      return id && (read.contains(id) ||
                    (program.at(id).role == Role::kOutput && outputs.contains(program.at(id).name)));
    };
    const bool wanted =
        std::any_of(program.families.begin(), program.families.end(), [&](const Family& family) {
          return family.entry.value == i && std::any_of(family.writes.begin(), family.writes.end(), isWanted);
        });
    if (!wanted) continue;
    entries.push_back({i});
    for (const Family& family : program.families)
      if (family.entry.value == i) read.insert(family.reads.begin(), family.reads.end());
  }
  std::reverse(entries.begin(), entries.end());
  return entries;
}

Expected<std::vector<OutputError>> outputErrors(const VerifiedProgram& program,
                                                const std::vector<TensorMap>& inputs,
                                                const std::vector<TensorMap>& outputs, int threads) {
  for (const auto& [name, tensor] : outputs.front())
    if (!isOutput(*program, name))
      return Error{fmt::format("tensor '{}' is no output of program '{}'", name, program->name)};
  std::vector<ValueMap> given;
  for (const TensorMap& tensors : inputs) given.push_back(toValues(tensors));
  const Expected<std::vector<ValueMap>> expected =
      evaluate(program, entriesFor(*program, outputs.front()), given, {.threads = threads});
  if (!expected) return expected.error();

  std::vector<OutputError> errors;
  for (const Buffer& buffer : program->buffers) {
    if (buffer.role != Role::kOutput || !outputs.front().contains(buffer.name)) continue;
    std::vector<Values> found;
    std::vector<const Values*> foundAt, expectedAt;
    for (size_t rank = 0; rank < outputs.size(); ++rank) {
      const Tensor& tensor = outputs[rank].at(buffer.name);
      expectedAt.push_back(&(*expected)[rank].at(buffer.name));
      if (Status status = compareShape(rank, buffer, tensor, *expectedAt.back()); !status)
        return status.error();
      found.push_back(toValues(tensor));
    }
    for (const Values& values : found) foundAt.push_back(&values);
    errors.push_back({buffer.name, relativeError(foundAt, expectedAt)});
  }
  return errors;
}

}  // namespace sluice::tools
