#include "tools/simulate/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "tools/cli/files.h"
#include "tools/cli/run_tensors.h"
#include "tools/io/safetensors.h"
#include "tools/trace/read_trace.h"

namespace sluice::tools {

namespace {

Status checkCores(const TaskProgram& program, const Target& target) {
  const auto describe = [](int32_t cores, int32_t cube, int32_t vector) {
    return cube > 0 ? fmt::format("{} cube and {} vector cores", cube, vector)
                    : fmt::format("{} unified cores", cores);
  };
  const bool sameKind = (program.cubeCores > 0) == (target.cubeCores > 0);
  if (sameKind && program.cubeCores <= target.cubeCores && program.vectorCores <= target.vectorCores)
    return {};
  return Error{fmt::format("found {}, expected {}{} of target '{}'",
                           describe(program.cores, program.cubeCores, program.vectorCores),
                           sameKind ? "at most the " : "the kinds of cores of the ",
                           describe(target.cores, target.cubeCores, target.vectorCores), target.name)};
}

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

Expected<BoundRouting> bindStep(const Plan& plan, EntryId entry, const StepRouting& routing) {
  const EntryId routes = plan.at(entry).routing;
  return bindAll(plan, routes, findRouting(plan.program(), routes, routing));
}

Expected<std::vector<SimResult>> simulateSteps(const Plan& plan, const std::vector<EntryId>& entries,
                                               const StepRouting& routing, const SimDevice& device,
                                               bool spans, const std::function<void(size_t)>& before) {
  std::map<uint32_t, BoundRouting> bound;  // by the entry that routes
  std::vector<SimResult> results;
  for (const EntryId entry : entries) {
    if (before) before(results.size());
    const EntryId routes = plan.at(entry).routing;
    if (!bound.contains(routes.value)) {
      Expected<BoundRouting> tables = bindStep(plan, entry, routing);
      if (!tables) return tables.error();
      bound.emplace(routes.value, std::move(*tables));
    }
    Expected<SimResult> result = simulateEntry(plan, entry, bound.at(routes.value).of(plan, entry),
                                               device.rates, {device.workers, spans});
    if (!result) return result.error();
    results.push_back(std::move(*result));
  }
  return results;
}

std::vector<Trace> collectTraces(const std::vector<SimResult>& results) {
  std::vector<Trace> joined(results.empty() ? 0 : results.front().traces.size());
  int64_t begin = 0;
  for (const SimResult& result : results) {
    for (size_t rank = 0; rank < joined.size(); ++rank) {
      TraceSpan run;
      run.kind = SpanKind::kRun;
      run.entry = result.entry;
      run.begin = begin;
      run.end = begin + toNanoseconds(result.ranks[rank].end);
      run.index = std::ssize(joined[rank].routings);
      run.slot = run.index + 1;
      joined[rank].routings.push_back(result.traces[rank].routings.front());
      joined[rank].spans.push_back(run);
      for (TraceSpan span : result.traces[rank].spans) {
        span.begin += begin;
        span.end += begin;
        joined[rank].spans.push_back(span);
      }
    }
    begin += toNanoseconds(result.end) + 1;
  }
  for (Trace& trace : joined) sortSpans(trace);
  return joined;
}

Expected<SimDevice> makeSimDevice(const TaskProgram& program, const std::string& name, int workers) {
  const Expected<Target> target = loadTarget(name, targetFolders(""));
  if (!target) return target.error();
  if (!target->rates)
    return Error{fmt::format(
        "target '{}': found no rates, expected matrix, vector, memory, caches, link and task", target->name)};
  if (Status fits = checkCores(program, *target); !fits) return fits.error();
  const bool apart = program.cubeCores > 0;
  const int cores = apart ? program.cubeCores + program.vectorCores : program.cores;
  if (workers > cores)
    return Error{fmt::format("found {} workers, expected 1 to {}, the cores of the program", workers, cores)};
  const int most = apart ? cores : std::min(cores, target->cores);
  return SimDevice{target->name, *target->rates, workers > 0 ? workers : most};
}

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
