// Mutations that move lanes to other cores, consistent around it.
#include <algorithm>
#include <iterator>
#include <utility>

#include "tests/runtime/program/verify_mutation_tools.h"
#include "tests/runtime/program/verify_mutations.h"

namespace sluice {
namespace {

// The lane's tasks, in order of seats.
std::vector<TaskRecord> takeTasks(Lane& lane) {
  std::vector<TaskRecord> tasks;
  for (auto& seat : lane.seats) std::move(seat.begin(), seat.end(), std::back_inserter(tasks));
  lane.seats.clear();
  return tasks;
}

void deal(Lane& lane, std::vector<TaskRecord> tasks, int64_t seats) {
  std::stable_sort(tasks.begin(), tasks.end(), [](auto& a, auto& b) { return a.slot < b.slot; });
  lane.seats.assign(static_cast<size_t>(seats), {});
  for (size_t task = 0; task < tasks.size(); ++task)
    lane.seats[task % lane.seats.size()].push_back(tasks[task]);
  lane.rotation = static_cast<int32_t>(tasks.size() % lane.seats.size());
}

// A lane on some of the cores of its kind, now and then on one too many.
void changeRange(TaskProgram& p, Random& random) {
  Lane& lane = any(p.lanes, random);
  const int64_t cores = std::max(p.coreCount(lane.core), 1);
  lane.firstCore = static_cast<int32_t>(below(random, cores));
  const int64_t rest = std::clamp<int64_t>(cores - lane.firstCore, 1, 64);
  deal(lane, takeTasks(lane), 1 + below(random, below(random, 6) == 0 ? rest + 1 : rest));
}

// A lane and its families on cores of another kind.
void changeKind(TaskProgram& p, Random& random) {
  Lane& lane = any(p.lanes, random);
  anyEnum(lane.core, 2, random);
  std::vector<TaskRecord> tasks = takeTasks(lane);
  for (const TaskRecord& task : tasks)
    if (task.family.value < p.families.size()) p.families[task.family.value].core = lane.core;
  lane.firstCore = 0;
  deal(lane, std::move(tasks), std::clamp(p.coreCount(lane.core), 1, 64));
}

// A core more of each kind there is: no lane need use it.
void addCores(TaskProgram& p, Random&) {
  for (int32_t* cores : {&p.cores, &p.cubeCores, &p.vectorCores})
    if (*cores > 0 && *cores < 64) ++*cores;
}

}  // namespace

std::vector<Mutation> coreMutations() {
  return {{"cores of a lane", changeRange}, {"kind of cores", changeKind}, {"added cores", addCores}};
}

}  // namespace sluice
