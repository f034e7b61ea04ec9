#include "compiler/emit/emit.h"
#include "compiler/passes/common.h"
#include "compiler/passes/passes.h"

namespace sluice {

#define GEN_PASS_DEF_CHECKTASKS
#include "compiler/passes/passes.h.inc"

namespace {

using mlir::failure;
using mlir::LogicalResult;
using mlir::success;

struct CheckTasks : impl::CheckTasksBase<CheckTasks> {
  void runOnOperation() override {
    const TaskProgram program = emitProgram(getOperation());
    if (failed(checkDeal(program)) || failed(checkEvents(program)) || failed(checkRegions(program)))
      signalPassFailure();
  }

  LogicalResult checkDeal(const TaskProgram& program) {
    const std::vector<mlir::Operation*> ops = familyOps(getOperation());
    std::vector<std::vector<uint8_t>> dealt(program.families.size());
    for (size_t f = 0; f < dealt.size(); ++f)
      dealt[f].resize(static_cast<size_t>(program.families[f].tiles) *
                      static_cast<size_t>(program.at(program.families[f].space).window));
    for (const Lane& lane : program.lanes)
      for (const std::vector<TaskRecord>& seat : lane.seats)
        for (const TaskRecord& task : seat) {
          const Family& family = program.at(task.family);
          const size_t number = task.slot * static_cast<size_t>(family.tiles) + task.tile;
          if (number < dealt[task.family.value].size() && dealt[task.family.value][number]++ == 0) continue;
          return mlir::emitError(ops[task.family.value]->getLoc())
                 << "task (" << task.slot << ", " << task.tile << ") of family '" << family.name
                 << "' is dealt twice or lies outside its window";
        }
    for (size_t f = 0; f < dealt.size(); ++f)
      if (llvm::is_contained(dealt[f], 0))
        return mlir::emitError(ops[f]->getLoc())
               << "family '" << program.families[f].name << "' is not dealt completely";
    return success();
  }

  LogicalResult checkEvents(const TaskProgram& program) {
    std::vector<bool> signalled(program.events.size()), awaited(program.events.size());
    for (const Family& family : program.families) {
      for (EventId id : family.signals) signalled[id.value] = true;
      for (EventId id : family.waits) awaited[id.value] = true;
    }
    for (size_t e = 0; e < signalled.size(); ++e)
      if (!signalled[e] || !awaited[e])
        return getOperation().emitError() << "no family " << (signalled[e] ? "waits for" : "signals")
                                          << " event '" << program.events[e].name << "'";
    return success();
  }

  LogicalResult checkRegions(const TaskProgram& program) {
    for (const Buffer& buffer : program.buffers)
      if ((buffer.role == Role::kTemp || buffer.role == Role::kSaved) && buffer.region.none())
        return getOperation().emitError() << "buffer '" << buffer.name << "' has no region";
    return success();
  }
};

}  // namespace
}  // namespace sluice
