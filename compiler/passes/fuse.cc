// Per entry: folds scales into products, then fuses gmms with activation gradients, then gmms with
// activations. Each step sees the result of the previous one.
#include "compiler/analysis/fusion.h"
#include "compiler/dialect/moe_gradient.h"
#include "compiler/passes/passes.h"
#include "llvm/ADT/StringSet.h"

namespace sluice {

#define GEN_PASS_DEF_FUSE
#include "compiler/passes/passes.h.inc"

namespace {

using mlir::Operation;
using mlir::Value;

FusionRole fusionRole(Operation* op) {
  if (auto gmm = llvm::dyn_cast<moe::GmmOp>(op))
    return gmm.getBias() ? FusionRole::kBiasedGmm : FusionRole::kGmm;
  if (llvm::isa<moe::GmmWeightGradOp>(op)) return FusionRole::kWeightGrad;
  if (llvm::isa<moe::ActivationOp>(op)) return FusionRole::kActivation;
  if (llvm::isa<moe::ActivationGradOp>(op)) return FusionRole::kActivationGrad;
  auto scale = llvm::dyn_cast<moe::ScaleOp>(op);
  return scale && !scale.getRowWeights() ? FusionRole::kScale : FusionRole::kOther;
}

float nodeAlpha(Operation* op) {
  const auto alpha = op->getAttrOfType<mlir::FloatAttr>("alpha");
  return alpha ? alpha.getValue().convertToFloat() : 1;
}

// The nodes of an entry as the analysis sees them; its node numbers are indices of `ops`.
struct EntryGraph {
  explicit EntryGraph(moe::EntryOp entry) {
    for (auto node : entry.getOps<moe::NodeOp>()) {
      graph.nodes.push_back({fusionRole(node), nodeAlpha(node), {}, {}});
      for (Value value : node->getOperands()) graph.nodes.back().reads.push_back(numberOf(value));
      for (Value value : node->getResults()) graph.nodes.back().writes.push_back(numberOf(value));
      ops.push_back(node);
    }
  }

  size_t numberOf(Value value) {
    const auto [it, isNew] = numbers.try_emplace(value, graph.kept.size());
    if (isNew)
      graph.kept.push_back(llvm::any_of(
          value.getUsers(), [](Operation* user) { return llvm::isa<moe::OutputOp, moe::SaveOp>(user); }));
    return it->second;
  }

  FusionGraph graph;
  std::vector<Operation*> ops;
  llvm::DenseMap<Value, size_t> numbers;
};

class EntryFuser {
 public:
  explicit EntryFuser(moe::EntryOp entry) : entry_(entry), builder_(entry.getContext()) {
    for (auto node : entry.getOps<moe::NodeOp>()) names_.insert(node.getNode());
  }

  void run(const FusionKinds& kinds) {
    if (kinds.scale) foldAll();
    if (kinds.activationGrad) {
      const EntryGraph graph(entry_);
      for (const FusedPair& pair : fuseActivationGrads(graph.graph))
        fuse(llvm::cast<moe::GmmOp>(graph.ops[pair.gmm]),
             llvm::cast<moe::ActivationGradOp>(graph.ops[pair.reader]));
    }
    if (kinds.activation) {
      const EntryGraph graph(entry_);
      for (const FusedPair& pair : fuseActivations(graph.graph))
        fuse(llvm::cast<moe::GmmOp>(graph.ops[pair.gmm]),
             llvm::cast<moe::ActivationOp>(graph.ops[pair.reader]), pair.keepsProduct);
    }
  }

 private:
  void foldAll() {
    const EntryGraph graph(entry_);
    for (const FoldedScale& folded : foldScales(graph.graph)) {
      auto scale = llvm::cast<moe::ScaleOp>(graph.ops[folded.scale]);
      for (size_t product : folded.into) {
        Operation* op = graph.ops[product];
        const float alpha = nodeAlpha(op) * scale.getAlpha().convertToFloat();
        op->setAttr("alpha", builder_.getF32FloatAttr(alpha));
        if (folded.intoProducer && scale.getTensorsAttr()) op->setAttr("tensors", scale.getTensorsAttr());
      }
      scale.getScaled().replaceAllUsesWith(scale.getValue());
      scale.erase();
    }
  }

  // Inserted at the place of the gmm, because others may read the product before the activation does.
  void fuse(moe::GmmOp gmm, moe::ActivationOp activation, bool keepsProduct) {
    if (!agree(gmm, activation)) return;
    builder_.setInsertionPoint(gmm);
    llvm::SmallVector<mlir::StringAttr> tensors = {resultNameAttr(activation.getAct())};
    if (keepsProduct) tensors.push_back(resultNameAttr(gmm.getProduct()));
    auto fused = builder_.create<moe::GmmActivationOp>(
        fusedLocation(gmm, activation), activation.getAct().getType(),
        keepsProduct ? gmm.getProduct().getType() : mlir::Type(), gmm.getRows(), gmm.getWeight(),
        gmm.getBias(), gmm.getRowScale(), gmm.getWeightScale(), gmm.getWeightZero(), gmm.getRowAmax(),
        gmm.getWeightAmax(), gmm.getWeightFactor(), gmm.getTransposeAttr(), gmm.getAlphaAttr(),
        activation.getKindAttr(), activation.getLimitAttr(), gmm.getRoundAAttr(), gmm.getRoundBAttr(),
        fusedName(gmm, activation), makeStringArray(tensors), fusedSplit(gmm, activation));
    activation.getAct().replaceAllUsesWith(fused.getAct());
    activation.erase();
    if (keepsProduct) gmm.getProduct().replaceAllUsesWith(fused.getGateUp());
    gmm.erase();
  }

  // Inserted at the place of the gradient, because its other operands come before it.
  void fuse(moe::GmmOp gmm, moe::ActivationGradOp grad) {
    if (!agree(gmm, grad)) return;
    builder_.setInsertionPoint(grad);
    auto fused = builder_.create<moe::GmmActivationGradOp>(
        fusedLocation(gmm, grad), grad.getGateUpGrad().getType(), grad.getMore().getTypes(), gmm.getRows(),
        gmm.getWeight(), grad.getGateUp(), grad.getRowWeights(), gmm.getRowScale(), gmm.getWeightScale(),
        gmm.getWeightZero(), gmm.getRowAmax(), gmm.getWeightAmax(), gmm.getWeightFactor(),
        gmm.getTransposeAttr(), gmm.getAlphaAttr(), grad.getKindAttr(), grad.getLimitAttr(),
        grad.getGivesActAttr(), gmm.getRoundAAttr(), gmm.getRoundBAttr(), fusedName(gmm, grad),
        grad.getTensorsAttr(), fusedSplit(gmm, grad));
    grad.replaceAllUsesWith(fused);
    grad.erase();
    gmm.erase();
  }

  // Nodes with different cuts stay separate, so that propagate-splits reports them.
  static bool agree(moe::NodeOp a, moe::NodeOp b) {
    return !a.getSplitAttr() || !b.getSplitAttr() || a.getSplitAttr() == b.getSplitAttr();
  }
  static moe::SplitAttr fusedSplit(moe::NodeOp a, moe::NodeOp b) {
    return a.getSplitAttr() ? a.getSplitAttr() : b.getSplitAttr();
  }

  static mlir::Location fusedLocation(moe::NodeOp a, moe::NodeOp b) {
    return mlir::FusedLoc::get(a->getContext(), {a->getLoc(), b->getLoc()});
  }

  // "up_proj_swiglu"; with a number if that is taken.
  mlir::StringAttr fusedName(moe::NodeOp a, moe::NodeOp b) {
    constexpr size_t kMaxOfBoth = 56;  // leaves room for the number in what a name may have
    const std::string both = (a.getNode() + "_" + b.getNode()).str().substr(0, kMaxOfBoth);
    return builder_.getStringAttr(moe::takeName(names_, both));
  }

  mlir::StringAttr resultNameAttr(Value value) {
    const llvm::StringRef name = moe::tensorName(value);
    return name.empty() ? mlir::StringAttr() : builder_.getStringAttr(name);
  }

  // Either all results have names or none has.
  mlir::ArrayAttr makeStringArray(llvm::ArrayRef<mlir::StringAttr> names) {
    if (llvm::is_contained(names, mlir::StringAttr())) return {};
    return builder_.getArrayAttr({names.begin(), names.end()});
  }

  moe::EntryOp entry_;
  mlir::OpBuilder builder_;
  llvm::StringSet<> names_;
};

struct Fuse : impl::FuseBase<Fuse> {
  using FuseBase::FuseBase;

  void runOnOperation() override {
    FusionKinds parsed;
    const std::vector<std::string> words(kinds.begin(), kinds.end());
    if (const std::string wrong = parseFusionKinds(words, parsed); !wrong.empty()) {
      getOperation().emitError() << "cannot fuse " << wrong
                                 << ", expected all, none, or some of activation, activation-grad, scale";
      return signalPassFailure();
    }
    getOperation().walk([&](moe::EntryOp entry) { EntryFuser(entry).run(parsed); });
  }
};

}  // namespace
}  // namespace sluice
