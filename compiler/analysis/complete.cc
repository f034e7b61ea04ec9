#include "compiler/analysis/complete.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "compiler/analysis/memory_lifetimes.h"

namespace sluice {
namespace {

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

}  // namespace

Status checkTasks(const TaskProgram& program) {
  if (Status status = checkDeal(program); !status) return status;
  if (Status status = checkEvents(program); !status) return status;
  return checkRegions(program);
}

}  // namespace sluice
