#include "compiler/report/family_work.h"

#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"

namespace sluice {
namespace {

int64_t ceilDivide(int64_t length, int64_t part) { return (length + part - 1) / part; }

// Slots of rows or of groups.
int64_t rowSlots(const TaskProgram& program, SpaceKind kind) {
  const Space* space = findSpace(program, kind);
  const int64_t slotRows = space != nullptr ? space->slotSize : 1;
  const int64_t rows = balancedExtent(program, Extent::kRows), experts = program.maxExperts();
  return experts * ceilDivide(ceilDivide(rows, experts), slotRows);
}

int64_t liveSlots(const TaskProgram& program, const Space& space) {
  if (isRemote(space.kind)) return rowSlots(program, SpaceKind::kRows) * program.mesh.sources();
  if (space.kind == SpaceKind::kOnce) return 1;
  if (space.kind == SpaceKind::kExperts) return program.maxExperts();
  if (space.kind == SpaceKind::kTokens) return ceilDivide(program.maxTokens, space.slotSize);
  return rowSlots(program, space.kind);
}

}  // namespace

FamilyWork countWork(const TaskProgram& program, const Family& family) {
  FamilyWork work;
  for (BufferId b : family.reads)
    if (b) work.read += sizeFormula(program.at(b));
  for (BufferId b : family.writes)
    if (b) work.written += sizeFormula(program.at(b));
  const OpInfo& op = findInfo(family.op);
  if (op.domain == Domain::kSends) {
    // Rows are told by pairs here, and by rows where they arrive.
    work.read = {0, 0, 0, work.read.tokens};
    if (const BufferId id = findBuffer(family, &Operands::weights)) {
      const int64_t weights = bytesPerUnit(program.at(id));
      work.read.pairs += weights / program.topK - weights;
    }
    work.written = {0, 0, 0, work.written.rows};
  } else if (op.domain == Domain::kReturns) {
    work.written = {0, 0, work.written.pairs, 0};
  } else if (accumulates(family)) {
    work.read += work.written;
  }
  const Extent extent = op.vector == VectorWork::kWeightedSum           ? Extent::kPairs
                        : findInfo(program.at(family.space).kind).dense ? Extent::kTokens
                                                                        : Extent::kRows;
  work.flops.at(extent) = productFlops(family.op, family.tiling) + vectorFlops(family);
  return work;
}

int64_t tasksInBalancedStep(const TaskProgram& program, const Family& family) {
  return liveSlots(program, program.at(family.space)) * family.tiles;
}

}  // namespace sluice
