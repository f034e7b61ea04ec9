#include "compiler/passes/split_nodes.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

namespace sluice {
namespace {

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

}  // namespace

SplitNodes collectSplitNodes(moe::GraphOp graph) { return Collector().run(graph); }

DeclaredSlots findDeclaredSlots(moe::GraphOp graph) {
  DeclaredSlots declared;
  for (const SplitNode& node : collectSplitNodes(graph).nodes) {
    if (node.rows != 0) declared.rows = declared.rows == 0 ? node.rows : std::min(declared.rows, node.rows);
    if (node.tokens != 0) declared.tokens = node.tokens;
  }
  return declared;
}

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

}  // namespace sluice
