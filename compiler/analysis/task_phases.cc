#include "compiler/analysis/task_phases.h"

#include "compiler/analysis/complete.h"
#include "compiler/analysis/events.h"
#include "compiler/analysis/lanes.h"
#include "compiler/analysis/memory.h"
#include "compiler/analysis/shard.h"

namespace sluice {
namespace {

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
