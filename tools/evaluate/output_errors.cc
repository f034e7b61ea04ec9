#include "tools/evaluate/output_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
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
  for (const TensorMap& tensors : inputs) given.push_back(viewTensors(tensors));
  EvaluateOptions complete = options;
  complete.tokens = tokensOfOutputs(*program, {}, outputs);
  return evaluate(program, entriesFor(*program, outputs.front()), std::move(given), complete);
}

std::vector<BufferId> comparedBuffers(const TaskProgram& program, const std::vector<TensorMap>& outputs) {
  std::vector<BufferId> buffers;
  for (uint32_t i = 0; i < program.buffers.size(); ++i)
    if (program.buffers[i].role == Role::kOutput && outputs.front().contains(program.buffers[i].name))
      buffers.push_back({i});
  return buffers;
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
                                                bool exactFactors, const EvaluateHook& before,
                                                const OutputReader& read) {
  // what is rounded to few bits must be what the program has: the next number would give another one
  const bool roundStored = !exactFactors && std::ranges::any_of(program->families, [](const Family& family) {
    return roundsFactors(family.tiling);
  });
  std::map<BufferId, ErrorSum> sums;
  std::map<BufferId, Status> states;  // the first error of each
  const OutputHook compare = [&](size_t rank, BufferId id, const Values& expected) {
    const Buffer& buffer = program->at(id);
    const auto found = outputs[rank].find(buffer.name);
    if (found == outputs[rank].end()) return;
    Status& state = states.try_emplace(id).first->second;
    if (state) state = compareShape(rank, buffer, found->second, expected);
    if (!state) return;
    const bool isThere = found->second.data();
    const Expected<Tensor> later = isThere ? Expected<Tensor>(Tensor()) : read(rank, buffer.name);
    if (!later) {
      state = later.error();
    } else {
      sums[id].add({found->second.shape(), {}, isThere ? &found->second : &*later}, expected);
    }
  };
  const Expected<std::vector<ValueMap>> evaluated = evaluateFor(program, inputs, outputs,
                                                                {.roundStored = roundStored,
                                                                 .threads = threads,
                                                                 .exactFactors = exactFactors,
                                                                 .before = before,
                                                                 .output = compare});
  if (!evaluated) return evaluated.error();
  std::vector<OutputError> errors;
  for (const BufferId id : comparedBuffers(*program, outputs)) {
    if (const auto state = states.find(id); state != states.end() && !state->second)
      return state->second.error();
    errors.push_back({program->at(id).name, sums[id].relative()});
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
  for (const BufferId id : comparedBuffers(*program, outputs)) errors.push_back({program->at(id).name, 0});
  for (uint64_t seed = 1; seed <= kNoisyRuns; ++seed) {
    ++evaluations;
    const Expected<std::vector<ValueMap>> noisy =
        evaluateFor(program, inputs, outputs, {.noiseSeed = seed, .threads = threads, .before = ofAll});
    if (!noisy) return noisy.error();
    for (OutputError& error : errors) {
      const std::string name(error.name);
      ErrorSum sum;
      for (size_t rank = 0; rank < exact->size(); ++rank)
        sum.add((*noisy)[rank].at(name), (*exact)[rank].at(name));
      error.relative += sum.relative() * sum.relative() / kNoisyRuns;
    }
  }
  for (OutputError& error : errors) error.relative = std::sqrt(error.relative);
  return errors;
}

}  // namespace sluice::tools
