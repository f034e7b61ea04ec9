#include "tools/simulate/step_routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "tools/cli/files.h"
#include "tools/cli/run_tensors.h"
#include "tools/io/safetensors.h"

namespace sluice::tools {
namespace {

// The inputs from which the routing of all entries follows.
std::vector<BufferId> routingInputs(const TaskProgram& program) {
  std::vector<BufferId> ids;
  for (const Entry& entry : program.entries)
    for (const BufferId id : {entry.expertIds, entry.placement})
      if (id && std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  return ids;
}

// T of a rank from its file. Without expert ids, any tensor of tokens or rows in it shows T.
Expected<int64_t> tokensIn(const TaskProgram& program, int rank, std::vector<BufferId> inputs,
                           const TensorMap& file) {
  if (!hasExpertIds(program)) {
    for (uint32_t b = 0; b < program.buffers.size(); ++b) {
      const Buffer& buffer = program.buffers[b];
      const Extent extent = buffer.shape.empty() ? Extent::kFixed : buffer.shape[0].extent;
      if (buffer.role == Role::kInput && (extent == Extent::kTokens || extent == Extent::kRows) &&
          file.contains(buffer.name))
        inputs.push_back(BufferId{b});
    }
    if (inputs.empty()) return Error{"found no input with tokens or rows, expected at least one"};
  }
  return checkInputs(program, rank, inputs, file);
}

std::span<const int32_t> numbersOf(const TaskProgram& program, BufferId id, const TensorMap& tensors) {
  if (!id) return {};
  const Tensor& tensor = tensors.at(program.at(id).name);
  return {tensor.as<int32_t>(), static_cast<size_t>(tensor.elements())};
}

}  // namespace

Expected<StepRouting> makeStepRouting(const TaskProgram& program, const InputsSpec& spec) {
  Expected<std::vector<int64_t>> tokens = tokensOfRanks(program, spec);
  if (!tokens) return tokens.error();
  StepRouting routing{std::move(*tokens), {}};
  for (int rank = 0; rank < program.mesh.peers(); ++rank)
    routing.tensors.push_back(
        makeRoutingInputs(program, spec, rank, routing.tokens[static_cast<size_t>(rank)]));
  return routing;
}

Expected<StepRouting> readStepRouting(const TaskProgram& program, const std::string& pattern) {
  const Expected<std::vector<std::string>> paths = rankPaths(pattern, program.mesh.peers());
  if (!paths) return paths.error();
  const std::vector<BufferId> inputs = routingInputs(program);
  StepRouting routing;
  for (int rank = 0; rank < program.mesh.peers(); ++rank) {
    const std::string& path = (*paths)[static_cast<size_t>(rank)];
    Expected<TensorMap> file = readSafetensors(path);  // one by one: the weights of all may not fit
    if (!file) return file.error();
    const Expected<int64_t> tokens = tokensIn(program, rank, inputs, *file);
    if (!tokens) return Error{fmt::format("{}: {}", path, tokens.error().message)};
    routing.tokens.push_back(*tokens);
    TensorMap kept;
    for (const BufferId id : inputs) {
      const std::string& name = program.at(id).name;
      kept.emplace(name, std::move(file->at(name)));
    }
    routing.tensors.push_back(std::move(kept));
  }
  return routing;
}

std::vector<RankRouting> findRouting(const TaskProgram& program, EntryId entry, const StepRouting& routing) {
  std::vector<RankRouting> ranks;
  if (!routing.recorded.empty())
    for (const TracedRouting& rank : routing.recorded[entry.value])
      ranks.push_back({rank.tokens, rank.places, {}, true});
  for (size_t rank = 0; rank < routing.tokens.size(); ++rank)
    ranks.push_back({routing.tokens[rank],
                     numbersOf(program, program.at(entry).expertIds, routing.tensors[rank]),
                     numbersOf(program, program.at(entry).placement, routing.tensors[rank])});
  return ranks;
}

}  // namespace sluice::tools
