#include "tests/testing/separate_cores.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace sluice {
namespace {

void dealAgain(Lane& lane, int32_t first, int32_t count) {
  std::vector<TaskRecord> tasks;
  for (const auto& seat : lane.seats) tasks.insert(tasks.end(), seat.begin(), seat.end());
  std::sort(tasks.begin(), tasks.end(), [](const TaskRecord& a, const TaskRecord& b) {
    return std::tie(a.slot, a.tile) < std::tie(b.slot, b.tile);
  });
  lane.firstCore = first;
  lane.seats.assign(static_cast<size_t>(count), {});
  for (size_t task = 0; task < tasks.size(); ++task)
    lane.seats[task % lane.seats.size()].push_back(tasks[task]);
  lane.rotation = static_cast<int32_t>(tasks.size() % lane.seats.size());
}

}  // namespace

TaskProgram separateCores(TaskProgram program, int cube, int vector, int communication) {
  program.cores = 0;
  program.cubeCores = cube;
  program.vectorCores = vector;
  for (Family& family : program.families) {
    const bool product = family.op == OpKind::kGmm || family.op == OpKind::kGmmWeightGrad;
    family.core = product ? CoreKind::kCube : CoreKind::kVector;
  }
  for (Lane& lane : program.lanes) {
    const auto filled =
        std::find_if(lane.seats.begin(), lane.seats.end(), [](auto& seat) { return !seat.empty(); });
    const Family& family = program.at(filled->front().family);
    const bool sends = family.op == OpKind::kDispatch || family.op == OpKind::kCombineReturn;
    lane.core = family.core;
    if (lane.core == CoreKind::kCube)
      dealAgain(lane, 0, cube);
    else if (sends && communication > 0)
      dealAgain(lane, 0, communication);
    else
      dealAgain(lane, communication, vector - communication);
  }
  return program;
}

}  // namespace sluice
