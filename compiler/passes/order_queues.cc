#include "compiler/analysis/lane_order.h"
#include "compiler/emit/emit.h"
#include "compiler/passes/passes.h"

namespace sluice {

#define GEN_PASS_DEF_ORDERQUEUES
#include "compiler/passes/passes.h.inc"

namespace {

struct OrderQueues : impl::OrderQueuesBase<OrderQueues> {
  using OrderQueuesBase::OrderQueuesBase;

  void runOnOperation() override {
    std::vector<LaneRule> byEntry;
    for (const std::string& name : rules) {
      const std::optional<LaneRule> rule = laneRuleFromName(name);
      if (!rule) {
        getOperation().emitError() << "unknown order of lanes '" << name
                                   << "', expected end, begin, end-grads or begin-grads";
        return signalPassFailure();
      }
      byEntry.push_back(*rule);
    }
    const std::vector<int32_t> priority = rankFamilies(emitProgram(getOperation()), byEntry);
    size_t next = 0;
    for (auto entry : getOperation().getOps<task::EntryOp>()) {
      llvm::StringMap<int32_t> byName;
      for (auto family : entry.getOps<task::FamilyOp>()) byName[family.getName()] = priority[next++];
      // A lane of several families goes with the first of them.
      for (auto lane : entry.getOps<task::LaneOp>())
        lane.setPriority(static_cast<uint32_t>(
            byName.lookup(llvm::cast<mlir::StringAttr>(lane.getFamilies()[0]).getValue())));
    }
  }
};

}  // namespace
}  // namespace sluice
