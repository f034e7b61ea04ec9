// Splits of the nodes of a moe.graph: their propagation, and the check of its result.
#include <vector>

#include "compiler/analysis/finding.h"
#include "compiler/analysis/splits.h"
#include "compiler/dialect/moe.h"
#include "compiler/passes/passes.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"

namespace sluice {

#define GEN_PASS_DEF_CHECKSPLITS
#define GEN_PASS_DEF_PROPAGATESPLITS
#include "compiler/passes/passes.h.inc"

namespace {

// The nodes of a moe.graph as the split analysis sees them.
struct SplitNodes {
  std::vector<SplitNode> nodes;       // of all entries, in order; routes are not cut
  std::vector<mlir::Operation*> ops;  // with the same index
};

class Collector {
 public:
  SplitNodes run(moe::GraphOp graph) {
    for (auto entry : graph.getOps<moe::EntryOp>())
      for (mlir::Operation& op : entry.getBody().front()) visit(op);
    return std::move(out_);
  }

 private:
  void visit(mlir::Operation& op) {
    if (auto save = llvm::dyn_cast<moe::SaveOp>(op)) {
      saved_[save.getTensor()] = save.getValue();
    } else if (auto node = llvm::dyn_cast<moe::NodeOp>(op); node && !llvm::isa<moe::RouteOp>(op)) {
      add(node);
    }
  }

  void add(moe::NodeOp node) {
    SplitNode split{
        node.getNode().str(), {}, 0, 0, moe::isDispatch(node) || llvm::isa<moe::CombineOp>(*node)};
    for (mlir::Value operand : node->getOperands())
      if (mlir::Operation* producer = findProducer(operand))
        split.producers.push_back(index_.lookup(producer));
    if (const moe::SplitAttr attr = node.getSplitAttr()) {
      const auto size = static_cast<int32_t>(attr.getSize());
      if (attr.getSpace() == moe::SplitSpace::rows) split.rows = size;
      if (attr.getSpace() == moe::SplitSpace::tokens) split.tokens = size;
    }
    index_[node] = out_.nodes.size();
    out_.nodes.push_back(std::move(split));
    out_.ops.push_back(node);
  }

  mlir::Operation* findProducer(mlir::Value value) {
    mlir::Operation* op = value.getDefiningOp();
    if (auto saved = llvm::dyn_cast_or_null<moe::SavedOp>(op))
      op = saved_.lookup(saved.getTensor()) ? saved_.lookup(saved.getTensor()).getDefiningOp() : nullptr;
    return index_.contains(op) ? op : nullptr;
  }

  SplitNodes out_;
  llvm::DenseMap<mlir::Operation*, size_t> index_;
  llvm::StringMap<mlir::Value> saved_;
};

// A tensor that an entry saved is traced to its producer there.
SplitNodes collectSplitNodes(moe::GraphOp graph) { return Collector().run(graph); }

// For graphs with splits: the names of the nodes of its entry that node `i` reads but that are cut along
// another space, or into rows of another size, so that it waits for other slots than its own. Empty for a
// combine: its rows return to their tokens by special rules. In order, without repetition.
std::vector<llvm::StringRef> listResplits(const SplitNodes& nodes, size_t i) {
  mlir::Operation* const op = nodes.ops[i];
  if (llvm::isa<moe::CombineOp>(op)) return {};
  // Space and, for rows, the size: two sizes are two ways to cut.
  const auto splitKey = [](mlir::Operation* node) -> std::pair<moe::SplitSpace, int64_t> {
    // sums over tokens have no slots, though they take their size from them
    if (moe::isSum(node)) return {moe::SplitSpace::experts, 0};
    if (llvm::isa<moe::CombineOp>(node)) return {moe::SplitSpace::tokens, 0};  // whatever it declares
    const moe::SplitAttr split = llvm::cast<moe::NodeOp>(node).getSplitAttr();
    return {split.getSpace(), split.getSpace() == moe::SplitSpace::rows ? split.getSize() : 0};
  };
  std::vector<size_t> producers = nodes.nodes[i].producers;
  llvm::sort(producers);
  producers.erase(std::unique(producers.begin(), producers.end()), producers.end());
  std::vector<llvm::StringRef> names;
  for (size_t producer : producers) {
    mlir::Operation* const other = nodes.ops[producer];
    if (other->getParentOp() == op->getParentOp() && splitKey(other) != splitKey(op))
      names.push_back(llvm::cast<moe::NodeOp>(other).getNode());
  }
  return names;
}

// The attribute of a node that holds those names as strings; absent if there are none.
constexpr llvm::StringLiteral kResplitAttr = "moe.resplit";

// Reports the finding and its note at the op that it concerns, or at `fallback`. Always returns failure.
mlir::LogicalResult report(const Finding& finding, llvm::ArrayRef<mlir::Operation*> ops,
                           mlir::Operation* fallback) {
  mlir::Operation* at = finding.at < ops.size() ? ops[finding.at] : fallback;
  mlir::InFlightDiagnostic error = mlir::emitError(at->getLoc()) << finding.message;
  if (finding.noteAt < ops.size() && !finding.note.empty())
    error.attachNote(ops[finding.noteAt]->getLoc()) << finding.note;
  return mlir::failure();
}

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

DeclaredSlots findDeclaredSlots(moe::GraphOp graph) {
  DeclaredSlots declared;
  for (const SplitNode& node : collectSplitNodes(graph).nodes) {
    if (node.rows != 0) declared.rows = declared.rows == 0 ? node.rows : std::min(declared.rows, node.rows);
    if (node.tokens != 0) declared.tokens = node.tokens;
  }
  return declared;
}

}  // namespace sluice
