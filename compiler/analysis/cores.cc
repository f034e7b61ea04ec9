#include "compiler/analysis/cores.h"

#include "runtime/program/space_table.h"

namespace sluice {

CoreRange coresFor(const TaskProgram& program, const Family& family, int32_t communication) {
  const int32_t cores = program.coresOf(family.core);
  if (family.core != CoreKind::kVector || communication <= 0 || communication >= cores) return {0, cores};
  return isRemote(program.at(family.space).kind) ? CoreRange{0, communication}
                                                 : CoreRange{communication, cores - communication};
}

}  // namespace sluice
