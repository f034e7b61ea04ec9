#include "compiler/analysis/events.h"
#include "compiler/emit/emit.h"
#include "compiler/passes/common.h"
#include "compiler/passes/passes.h"

namespace sluice {

#define GEN_PASS_DEF_INSERTEVENTS
#include "compiler/passes/passes.h.inc"

namespace {

struct InsertEvents : impl::InsertEventsBase<InsertEvents> {
  void runOnOperation() override {
    const std::vector<mlir::Operation*> families = familyOps(getOperation());
    TaskProgram program = emitProgram(getOperation());
    if (!program.events.empty()) {
      getOperation().emitError("has events already");
      return signalPassFailure();
    }
    const Analyzed<TaskProgram> planned = planEvents(std::move(program));
    if (const auto* finding = std::get_if<Finding>(&planned)) {
      (void)report(*finding, families, getOperation());
      return signalPassFailure();
    }
    const auto& plan = std::get<TaskProgram>(planned);
    addEvents(plan);
    for (size_t f = 0; f < families.size(); ++f) {
      auto family = llvm::cast<task::FamilyOp>(families[f]);
      const auto& [waits, signals] = std::tie(plan.families[f].waits, plan.families[f].signals);
      if (!waits.empty()) family.setWaitsAttr(names(plan, waits));
      if (!signals.empty()) family.setSignalsAttr(names(plan, signals));
    }
  }

  // At the beginning of their entries, in order.
  void addEvents(const TaskProgram& plan) {
    const std::vector<task::EntryOp> entries = entryOps(getOperation());
    mlir::OpBuilder builder(&getContext());
    for (uint32_t e = 0; e < entries.size(); ++e) {
      builder.setInsertionPointToStart(&entries[e]->getRegion(0).front());
      for (const EventArray& event : plan.events)
        if (event.entry.value == e)
          builder.create<task::EventOp>(
              entries[e]->getLoc(), event.name, static_cast<task::EventSpace>(event.space),
              static_cast<task::EventUnit>(event.unit), static_cast<task::ThresholdRule>(event.rule),
              event.factor, event.remote);
    }
  }

  mlir::ArrayAttr names(const TaskProgram& plan, const std::vector<EventId>& ids) {
    llvm::SmallVector<llvm::StringRef> out;
    for (EventId id : ids) out.push_back(plan.events[id.value].name);
    return mlir::Builder(&getContext()).getStrArrayAttr(out);
  }
};

}  // namespace
}  // namespace sluice
