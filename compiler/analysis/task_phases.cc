#include "compiler/analysis/task_phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "compiler/analysis/events.h"
#include "compiler/analysis/lanes.h"
#include "compiler/analysis/memory.h"
#include "runtime/program/op_table.h"
#include "runtime/program/sharding.h"
#include "runtime/program/words.h"

namespace sluice {
namespace {

// Fills the shardings of the buffers that families write, which say what each rank has of them. A family
// comes after those that write what it reads. With tp = 1 all tensors are whole. Errors, at the node:
// operands that do not fit (runtime/program/sharding.h); an output of tokens that is not whole.
Expected<TaskProgram> shardTensors(TaskProgram program) {
  if (program.mesh.tp == 1) {
    for (Buffer& buffer : program.buffers) buffer.sharding = Sharding::kWhole;
    return program;
  }
  for (const Buffer& buffer : program.buffers)
    if (Status status = checkSharding(buffer); !status) return Error{"error: " + status.error().message};
  for (const Family& family : program.families) {
    const Expected<std::vector<Sharding>> written = deriveShardings(program, family);
    if (!written) return errorAt(family, fmt::format("node '{}': {}", family.name, written.error().message));
    for (size_t i = 0; i < written->size(); ++i) {
      const BufferId id = bufferAt(family.writes, i);
      if (!id) continue;
      Buffer& buffer = program.buffers[id.value];
      if (buffer.sharding != Sharding::kWhole && buffer.sharding != (*written)[i])
        return errorAt(family,
                       fmt::format("node '{}' writes output '{}', {} at each of {} ranks, but the graph "
                                   "declares it as {}",
                                   family.name, buffer.name, text::word((*written)[i]), program.mesh.tp,
                                   text::word(buffer.sharding)));
      buffer.sharding = (*written)[i];
      if (Status status = checkSharding(buffer); !status) return errorAt(family, status.error().message);
    }
  }
  return program;
}

Status checkDeal(const TaskProgram& program) {
  std::vector<std::vector<uint8_t>> dealt;  // by family, by slot and tile
  for (const Family& family : program.families)
    dealt.emplace_back(static_cast<size_t>(family.tiles) *
                       static_cast<size_t>(program.at(family.space).window));
  for (const Lane& lane : program.lanes)
    for (const std::vector<TaskRecord>& seat : lane.seats)
      for (const TaskRecord& task : seat) {
        const Family& family = program.at(task.family);
        std::vector<uint8_t>& tasks = dealt[task.family.value];
        const size_t number = task.slot * static_cast<size_t>(family.tiles) + task.tile;
        if (number < tasks.size() && tasks[number]++ == 0) continue;
        return errorAt(family,
                       fmt::format("task ({}, {}) of family '{}' is dealt twice or lies outside its window",
                                   task.slot, task.tile, family.name));
      }
  for (size_t f = 0; f < dealt.size(); ++f)
    if (std::find(dealt[f].begin(), dealt[f].end(), 0) != dealt[f].end())
      return errorAt(program.families[f],
                     fmt::format("family '{}' is not dealt completely", program.families[f].name));
  return {};
}

Status checkEvents(const TaskProgram& program) {
  std::vector<bool> signalled(program.events.size()), awaited(program.events.size());
  for (const Family& family : program.families) {
    for (EventId id : family.signals) signalled[id.value] = true;
    for (EventId id : family.waits) awaited[id.value] = true;
  }
  for (size_t e = 0; e < signalled.size(); ++e)
    if (!signalled[e] || !awaited[e])
      return Error{reportLine("", "error",
                              fmt::format("no family {} event '{}'", signalled[e] ? "waits for" : "signals",
                                          program.events[e].name))};
  return {};
}

Status checkRegions(const TaskProgram& program) {
  for (const Buffer& buffer : program.buffers)
    if (isOwnedByRuntime(buffer) && buffer.region.none())
      return Error{reportLine("", "error", fmt::format("buffer '{}' has no region", buffer.name))};
  return {};
}

// Whether a program has everything that the phases add; verify() checks that the schedule is sound. Errors: a
// family that is not dealt exactly once, with its place; an event that no family signals or waits for; a
// buffer of the runtime without a region.
Status checkTasks(const TaskProgram& program) {
  if (Status status = checkDeal(program); !status) return status;
  if (Status status = checkEvents(program); !status) return status;
  return checkRegions(program);
}

using Made = Expected<TaskProgram>;

constexpr TaskPhase kPhases[] = {
    {"shard-tensors",
     [](TaskProgram program, const TaskOptions&) -> Made { return shardTensors(std::move(program)); }},
    {"cut-tasks",
     [](TaskProgram program, const TaskOptions& options) -> Made {
       return cutTasks(std::move(program), options.sizes, options.windows);
     }},
    {"insert-events",
     [](TaskProgram program, const TaskOptions&) -> Made { return insertEvents(std::move(program)); }},
    {"assign-cores",
     [](TaskProgram program, const TaskOptions& options) -> Made {
       return assignCores(std::move(program), options.communication);
     }},
    {"order-queues",
     [](TaskProgram program, const TaskOptions& options) -> Made {
       return orderQueues(std::move(program), options.laneRules);
     }},
    {"plan-memory",
     [](TaskProgram program, const TaskOptions&) -> Made { return planMemory(std::move(program)); }},
    {"check-tasks",
     [](TaskProgram program, const TaskOptions&) -> Made {
       if (Status status = checkTasks(program); !status) return status.error();
       return program;
     }},
};

}  // namespace

std::span<const TaskPhase> taskPhases() { return kPhases; }

Expected<VerifiedProgram> completeProgram(TaskProgram program, const TaskOptions& options) {
  for (const TaskPhase& phase : kPhases) {
    Expected<TaskProgram> made = phase.run(std::move(program), options);
    if (!made) return made.error();
    program = std::move(*made);
  }
  return verify(std::move(program));
}

}  // namespace sluice
