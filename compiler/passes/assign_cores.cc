#include "compiler/analysis/cores.h"
#include "compiler/analysis/lanes.h"
#include "compiler/emit/emit.h"
#include "compiler/passes/common.h"
#include "compiler/passes/passes.h"

namespace sluice {

#define GEN_PASS_DEF_ASSIGNCORES
#include "compiler/passes/passes.h.inc"

namespace {

constexpr int64_t kMaxTasks = 1 << 20;  // of a lane's window

struct AssignCores : impl::AssignCoresBase<AssignCores> {
  using AssignCoresBase::AssignCoresBase;

  void runOnOperation() override {
    const TaskProgram program = emitProgram(getOperation());
    if (!program.lanes.empty()) {
      getOperation().emitError("has lanes already");
      return signalPassFailure();
    }
    const std::vector<mlir::Operation*> families = familyOps(getOperation());
    for (size_t f = 0; f < families.size(); ++f)
      if (failed(addLane(program, program.families[f], llvm::cast<task::FamilyOp>(families[f]))))
        return signalPassFailure();
  }

  mlir::LogicalResult addLane(const TaskProgram& program, const Family& family, task::FamilyOp op) {
    const int64_t tasks = int64_t{family.tiles} * program.at(family.space).window;
    if (tasks > kMaxTasks)
      return op.emitError() << "family '" << family.name << "' has " << tasks
                            << " tasks in a window, expected at most " << kMaxTasks
                            << ": choose larger tiles or a smaller window";
    const CoreRange cores = coresFor(program, family, communicationCores);
    const Deal deal = dealTasks(program.at(family.space).window, family.tiles, cores.count);
    mlir::OpBuilder builder(&getContext());
    builder.setInsertionPointToEnd(op->getBlock());
    builder.create<task::LaneOp>(op.getLoc(), op.getNameAttr(), op.getSpaceAttr(), op.getCoreAttr(),
                                 builder.getStrArrayAttr({op.getName()}), builder.getI32IntegerAttr(0),
                                 builder.getI32IntegerAttr(deal.rotation), seatTable(deal),
                                 builder.getI32IntegerAttr(cores.first));
    return mlir::success();
  }

  mlir::ArrayAttr seatTable(const Deal& deal) {
    llvm::SmallVector<mlir::Attribute> seats;
    for (const std::vector<SlotTile>& seat : deal.seats) {
      std::vector<int32_t> cells;
      cells.reserve(3 * seat.size());
      for (const SlotTile& task : seat)
        cells.insert(cells.end(), {0, static_cast<int32_t>(task.slot), static_cast<int32_t>(task.tile)});
      seats.push_back(mlir::DenseI32ArrayAttr::get(&getContext(), cells));
    }
    return mlir::ArrayAttr::get(&getContext(), seats);
  }
};

}  // namespace
}  // namespace sluice
