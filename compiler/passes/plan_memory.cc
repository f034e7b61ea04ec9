#include "compiler/analysis/memory.h"
#include "compiler/emit/emit.h"
#include "compiler/passes/passes.h"

namespace sluice {

#define GEN_PASS_DEF_PLANMEMORY
#include "compiler/passes/passes.h.inc"

namespace {

struct PlanMemory : impl::PlanMemoryBase<PlanMemory> {
  void runOnOperation() override {
    const TaskProgram program = emitProgram(getOperation());
    if (!program.regions.empty()) {
      getOperation().emitError("has regions already");
      return signalPassFailure();
    }
    const MemoryPlan plan = planMemory(program);
    addRegions(plan);
    size_t b = 0;
    for (auto buffer : getOperation().getOps<task::BufferOp>()) {
      const RegionId region = plan.of[b];
      const int64_t offset = plan.offsets[b++];
      if (region) buffer.setRegion(llvm::StringRef(plan.regions[region.value].name));
      if (offset != 0) buffer.setOffset(static_cast<uint64_t>(offset));
    }
  }

  // Before the first buffer.
  void addRegions(const MemoryPlan& plan) {
    const auto buffers = getOperation().getOps<task::BufferOp>();
    if (buffers.empty()) return;
    mlir::OpBuilder builder(*buffers.begin());
    for (const Region& region : plan.regions)
      builder.create<task::RegionOp>(getOperation().getLoc(), region.name,
                                     static_cast<task::Extent>(region.extent),
                                     static_cast<uint64_t>(region.stride), region.symmetric, region.saved);
  }
};

}  // namespace
}  // namespace sluice
