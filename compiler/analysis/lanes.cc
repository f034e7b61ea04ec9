#include "compiler/analysis/lanes.h"

#include <fmt/format.h>

#include "runtime/program/deal.h"

namespace sluice {
namespace {

constexpr int64_t kMaxTasks = 1 << 20;  // of a lane's window

}  // namespace

Expected<TaskProgram> assignCores(TaskProgram program, const CommunicationCores& communication) {
  if (!program.lanes.empty()) return Error{reportLine("", "error", "the program has lanes already")};
  for (uint32_t f = 0; f < program.families.size(); ++f) {
    const Family& family = program.families[f];
    const int32_t window = program.at(family.space).window;
    const int64_t tasks = int64_t{family.tiles} * window;
    if (tasks > kMaxTasks)
      return errorAt(family, fmt::format("family '{}' has {} tasks in a window, expected at most {}: choose "
                                         "larger tiles or a smaller window",
                                         family.name, tasks, kMaxTasks));
    const CoreRange cores = coresFor(program, family, communication);
    Deal deal = dealTasks(FamilyId{f}, window, family.tiles, cores.count);
    program.lanes.push_back({family.name, family.entry, family.space, family.core, 0, deal.rotation,
                             std::move(deal.seats), cores.first});
  }
  return program;
}

}  // namespace sluice
