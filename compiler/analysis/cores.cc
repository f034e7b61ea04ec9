#include "compiler/analysis/cores.h"

#include <algorithm>

#include "runtime/program/space_table.h"

namespace sluice {

CoreRange coresFor(const TaskProgram& program, const Family& family,
                   const CommunicationCores& communication) {
  const SpaceKind space = program.at(family.space).kind;
  const int32_t cores = program.coreCount(family.core), reserved = communication.reserved;
  CoreRange range{0, cores};
  if (family.core == CoreKind::kVector && reserved > 0 && reserved < cores)
    range = isRemote(space) ? CoreRange{0, reserved} : CoreRange{reserved, cores - reserved};
  const int32_t most = space == SpaceKind::kSends     ? communication.sends
                       : space == SpaceKind::kReturns ? communication.returns
                                                      : 0;
  if (most > 0) range.count = std::min(range.count, most);
  return range;
}

}  // namespace sluice
