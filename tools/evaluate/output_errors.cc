#include "tools/evaluate/output_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace sluice::tools {
namespace {

constexpr int kNoisyRuns = 8;

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

// The outputs of the entries that `outputs` needs.
Expected<std::vector<ValueMap>> evaluateFor(const VerifiedProgram& program,
                                            const std::vector<TensorMap>& inputs,
                                            const std::vector<TensorMap>& outputs,
                                            const EvaluateOptions& options) {
  for (const auto& [name, tensor] : outputs.front())
    if (!isOutput(*program, name))
      return Error{fmt::format("tensor '{}' is no output of program '{}'", name, program->name)};
  std::vector<ValueMap> given;
  for (const TensorMap& tensors : inputs) given.push_back(toValues(tensors));
  EvaluateOptions complete = options;
  complete.tokens = tokensOfOutputs(*program, {}, outputs);
  return evaluate(program, entriesFor(*program, outputs.front()), std::move(given), complete);
}

std::vector<const Buffer*> comparedBuffers(const TaskProgram& program,
                                           const std::vector<TensorMap>& outputs) {
  std::vector<const Buffer*> buffers;
  for (const Buffer& buffer : program.buffers)
    if (buffer.role == Role::kOutput && outputs.front().contains(buffer.name)) buffers.push_back(&buffer);
  return buffers;
}

std::vector<const Values*> ofRanks(const std::vector<ValueMap>& maps, const std::string& name) {
  std::vector<const Values*> values;
  for (const ValueMap& map : maps) values.push_back(&map.at(name));
  return values;
}

bool hasTokens(const Buffer& buffer) {
  return !buffer.shape.empty() && buffer.shape[0].extent == Extent::kTokens;
}

}  // namespace

std::vector<int64_t> tokensOfOutputs(const TaskProgram& program, const std::vector<BufferId>& inputs,
                                     const std::vector<TensorMap>& outputs) {
  for (BufferId id : inputs)
    if (hasTokens(program.at(id))) return {};
  for (const Buffer& buffer : program.buffers) {
    if (buffer.role != Role::kOutput || !hasTokens(buffer)) continue;
    std::vector<int64_t> tokens;
    for (const TensorMap& tensors : outputs)
      if (const auto it = tensors.find(buffer.name); it != tensors.end() && !it->second.shape().empty())
        tokens.push_back(it->second.shape()[0]);
    if (tokens.size() == outputs.size()) return tokens;
  }
  return {};
}

std::vector<EntryId> entriesFor(const TaskProgram& program, const TensorMap& outputs) {
  std::vector<EntryId> entries;
  std::set<BufferId> read;  // by the entries taken so far, which run later
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
                                                const std::vector<TensorMap>& outputs, int threads,
                                                bool exactFactors, const EvaluateHook& before) {
  // what is rounded to few bits must be what the program has: the next number would give another one
  const bool roundStored = !exactFactors && std::ranges::any_of(program->families, [](const Family& family) {
    return roundsFactors(family.tiling);
  });
  const Expected<std::vector<ValueMap>> expected = evaluateFor(
      program, inputs, outputs,
      {.roundStored = roundStored, .threads = threads, .exactFactors = exactFactors, .before = before});
  if (!expected) return expected.error();
  std::vector<OutputError> errors;
  for (const Buffer* buffer : comparedBuffers(*program, outputs)) {
    std::vector<Values> found;  // of one name, because all together may need too much memory
    std::vector<const Values*> pointers;
    found.reserve(outputs.size());
    for (size_t rank = 0; rank < outputs.size(); ++rank) {
      const Tensor& tensor = outputs[rank].at(buffer->name);
      if (Status same = compareShape(rank, *buffer, tensor, (*expected)[rank].at(buffer->name)); !same)
        return same.error();
      pointers.push_back(&found.emplace_back(toValues(tensor)));
    }
    errors.push_back({buffer->name, relativeError(pointers, ofRanks(*expected, buffer->name))});
  }
  return errors;
}

bool roundsFactors(const TaskProgram& program) {
  return std::ranges::any_of(program.families, [](const Family& family) {
    return family.op == OpKind::kQuantize || roundsFactors(family.tiling);
  });
}

Expected<std::vector<OutputError>> roundingErrors(const VerifiedProgram& program,
                                                  const std::vector<TensorMap>& inputs,
                                                  const std::vector<TensorMap>& outputs, int threads,
                                                  const EvaluateHook& before) {
  int64_t evaluations = 0;  // complete ones
  const EvaluateHook ofAll = [&](int64_t step, int64_t steps, std::string_view family) {
    if (before) before(evaluations * steps + step, (kNoisyRuns + 1) * steps, family);
  };
  const Expected<std::vector<ValueMap>> exact =
      evaluateFor(program, inputs, outputs, {.threads = threads, .before = ofAll});
  if (!exact) return exact.error();
  std::vector<OutputError> errors;
  for (const Buffer* buffer : comparedBuffers(*program, outputs)) errors.push_back({buffer->name, 0});
  for (uint64_t seed = 1; seed <= kNoisyRuns; ++seed) {
    ++evaluations;
    const Expected<std::vector<ValueMap>> noisy =
        evaluateFor(program, inputs, outputs, {.noiseSeed = seed, .threads = threads, .before = ofAll});
    if (!noisy) return noisy.error();
    for (OutputError& error : errors) {
      const std::string name(error.name);
      const double once = relativeError(ofRanks(*noisy, name), ofRanks(*exact, name));
      error.relative += once * once / kNoisyRuns;
    }
  }
  for (OutputError& error : errors) error.relative = std::sqrt(error.relative);
  return errors;
}

}  // namespace sluice::tools
