#include "compiler/passes/common.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/split_nodes.h"

namespace sluice {

#define GEN_PASS_DEF_PROPAGATESPLITS
#include "compiler/passes/passes.h.inc"

namespace {

struct PropagateSplits : impl::PropagateSplitsBase<PropagateSplits> {
  using PropagateSplitsBase::PropagateSplitsBase;

  void runOnOperation() override {
    for (auto graph : getOperation().getOps<moe::GraphOp>())
      if (failed(propagate(graph))) return signalPassFailure();
  }

  SplitSizes fallback(moe::GraphOp graph) const {
    return withinLimits({rows, tokens, 0}, graph.getMesh().sources(),
                        static_cast<int64_t>(graph.getMaxTokens()));
  }

  mlir::LogicalResult propagate(moe::GraphOp graph) {
    const SplitNodes found = collectSplitNodes(graph);
    const Analyzed<SplitSizes> sizes = propagateSplits(found.nodes, fallback(graph));
    if (const auto* finding = std::get_if<Finding>(&sizes)) return report(*finding, found.ops, graph);
    const std::vector<int32_t> rowsOf = rowsOfNodes(found.nodes, std::get<SplitSizes>(sizes));
    for (size_t i = 0; i < found.ops.size(); ++i) {
      auto node = llvm::cast<moe::NodeOp>(found.ops[i]);
      node.setSplitAttr(splitFor(node, rowsOf[i], std::get<SplitSizes>(sizes).tokens));
    }
    for (size_t i = 0; i < found.ops.size(); ++i) {
      const std::vector<llvm::StringRef> resplits = listResplits(found, i);
      if (resplits.empty()) continue;
      found.ops[i]->setAttr(kResplitAttr, mlir::Builder(&getContext()).getStrArrayAttr(resplits));
    }
    return mlir::success();
  }

  static bool hasTokens(mlir::Value value) {
    const auto type = llvm::dyn_cast<moe::MoeTensorType>(value.getType());
    return type && type.hasTokens();
  }
  static bool writesTokens(moe::NodeOp node) { return hasTokens(node->getResult(0)); }

  // The space that the node declares, else the space of its result or, for a sum, the space of what it sums.
  moe::SplitAttr splitFor(moe::NodeOp node, int32_t rowsOfNode, int32_t tokensOfSlot) {
    moe::SplitSpace space = moe::SplitSpace::rows;
    if (writesTokens(node)) {
      space = moe::SplitSpace::tokens;
    } else if (moe::isSum(node)) {
      space = hasTokens(node->getOperand(0)) ? moe::SplitSpace::tokens : moe::SplitSpace::experts;
    }
    if (const moe::SplitAttr declared = node.getSplitAttr()) space = declared.getSpace();
    int32_t size = 1;
    if (space == moe::SplitSpace::rows) size = rowsOfNode;
    if (space == moe::SplitSpace::tokens) size = tokensOfSlot;
    return moe::SplitAttr::get(&getContext(), space, size);
  }
};

}  // namespace
}  // namespace sluice
