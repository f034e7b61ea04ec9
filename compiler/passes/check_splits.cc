#include "compiler/passes/common.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/split_nodes.h"

namespace sluice {

#define GEN_PASS_DEF_CHECKSPLITS
#include "compiler/passes/passes.h.inc"

namespace {

struct CheckSplits : impl::CheckSplitsBase<CheckSplits> {
  void runOnOperation() override {
    for (auto graph : getOperation().getOps<moe::GraphOp>())
      if (failed(check(graph))) return signalPassFailure();
  }

  mlir::LogicalResult check(moe::GraphOp graph) {
    const SplitNodes found = collectSplitNodes(graph);
    for (mlir::Operation* op : found.ops) {
      auto node = llvm::cast<moe::NodeOp>(op);
      if (!node.getSplitAttr() || node.getSplitAttr().getSize() == 0)
        return mlir::emitError(op->getLoc()) << "node '" << node.getNode() << "' has no split";
    }
    const Analyzed<SplitSizes> sizes = propagateSplits(found.nodes, {16, 1});
    if (const auto* finding = std::get_if<Finding>(&sizes)) return report(*finding, found.ops, graph);
    mlir::Builder builder(&getContext());
    for (size_t i = 0; i < found.ops.size(); ++i) {
      const mlir::ArrayAttr expected = builder.getStrArrayAttr(listResplits(found, i));
      auto names = found.ops[i]->getAttrOfType<mlir::ArrayAttr>(kResplitAttr);
      if (!names) names = builder.getArrayAttr({});
      if (names != expected)
        return mlir::emitError(found.ops[i]->getLoc())
               << "node '" << found.nodes[i].name << "' is re-split from " << names << ", expected "
               << expected;
    }
    return mlir::success();
  }
};

}  // namespace
}  // namespace sluice
