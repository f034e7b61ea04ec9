// Rows of weight gradients are weighted where they are written, not where a product loads them.
#include "compiler/dialect/moe_gradient.h"
#include "compiler/passes/names.h"
#include "compiler/passes/passes.h"
#include "llvm/ADT/STLExtras.h"
#include "runtime/base/rounding.h"

namespace sluice {

#define GEN_PASS_DEF_WEIGHTROWS
#include "compiler/passes/passes.h.inc"

namespace {

using mlir::Value;

bool isSink(mlir::Operation* op) { return llvm::isa<moe::OutputOp, moe::SaveOp>(op); }

// The weight gradients of one graph. 1. A factor that is an activation is given by the gradient of that
// activation, if it multiplies by the same weights. 2. Any other factor is multiplied by a node of its own.
// 3. Activations that nothing reads any more are neither kept nor computed again.
class RowWeighter {
 public:
  explicit RowWeighter(moe::GraphOp graph) : graph_(graph), builder_(graph), names_(graph) {}

  void run() {
    llvm::SmallVector<moe::GmmWeightGradOp> scaled;
    graph_.walk([&](moe::GmmWeightGradOp grad) {
      if (grad.getRowScale() && !isRounded(grad)) scaled.push_back(grad);
    });
    for (moe::GmmWeightGradOp grad : scaled) {
      if (!readActivation(grad)) readWeighted(grad);
      grad.getRowScaleMutable().clear();
    }
  }

 private:
  // What is rounded to 8 bits is weighted before, as it is loaded.
  static bool isRounded(moe::GmmWeightGradOp grad) {
    const auto rounds = [](std::optional<Rounding> by) {
      return by.value_or(Rounding::kNone) != Rounding::kNone;
    };
    return rounds(grad.getRoundA()) || rounds(grad.getRoundB());
  }

  static llvm::SmallVector<mlir::OpOperand*> listFactors(moe::GmmWeightGradOp grad) {
    return {&grad.getAMutable(), &grad.getBMutable()};
  }

  bool readActivation(moe::GmmWeightGradOp grad) {
    if (!llvm::all_of(grad->getUsers(), isSink)) return false;  // these can follow it
    for (mlir::OpOperand* factor : listFactors(grad))
      if (auto activation = findOrigin(factor->get()).getDefiningOp<moe::ActivationOp>())
        if (moe::ActivationGradOp found = findGradient(activation, grad)) {
          const Value before = factor->get();
          factor->set(makeWeightedAct(found, moe::valueName(activation.getAct())));
          moveAfter(grad, factor->get().getDefiningOp());
          dropUnread(before);
          return true;
        }
    return false;
  }

  // The value itself, or what an earlier entry has saved as it.
  Value findOrigin(Value value) {
    while (auto saved = value.getDefiningOp<moe::SavedOp>()) value = findSave(saved.getTensor()).getValue();
    return value;
  }

  moe::SaveOp findSave(llvm::StringRef tensor) {
    moe::SaveOp found;
    graph_.walk([&](moe::SaveOp save) {
      if (save.getTensor() == tensor) found = save;
    });
    return found;
  }

  // The gradient of the activation in the entry of `grad` that multiplies by the same weights; or null.
  moe::ActivationGradOp findGradient(moe::ActivationOp activation, moe::GmmWeightGradOp grad) {
    const Value gateUp = findOrigin(activation.getGateUp());
    for (auto each : grad->getParentOfType<moe::EntryOp>().getOps<moe::ActivationGradOp>())
      if (each.getRowWeights() == grad.getRowScale() && each.getKind() == activation.getKind() &&
          each.getLimitAttr() == activation.getLimitAttr() && findOrigin(each.getGateUp()) == gateUp)
        return each;
    return {};
  }

  // The weighted activation that `grad` gives, from now on if it did not.
  Value makeWeightedAct(moe::ActivationGradOp grad, const std::string& name) {
    if (grad.getGivesAct()) return grad.getWeightedAct();
    builder_.setInsertionPoint(grad);
    llvm::SmallVector<mlir::Type> more(grad.getMore().getTypes());
    more.push_back(grad.getActGrad().getType());
    mlir::ArrayAttr tensors = grad.getTensorsAttr();
    if (tensors) {
      llvm::SmallVector<mlir::Attribute> names(tensors.getValue());
      names.push_back(builder_.getStringAttr(names_.tensor(name + "_weighted")));
      tensors = builder_.getArrayAttr(names);
    }
    auto made = builder_.create<moe::ActivationGradOp>(
        grad.getLoc(), grad.getGateUpGrad().getType(), more, grad.getActGrad(), grad.getGateUp(),
        grad.getRowWeights(), grad.getKindAttr(), grad.getLimitAttr(), builder_.getUnitAttr(),
        grad.getNodeAttr(), tensors, grad.getSplitAttr());
    for (auto [before, now] : llvm::zip(grad->getResults(), made->getResults()))
      before.replaceAllUsesWith(now);
    grad.erase();
    return made.getWeightedAct();
  }

  // With the sinks of its result.
  static void moveAfter(mlir::Operation* op, mlir::Operation* other) {
    if (!op->isBeforeInBlock(other)) return;
    op->moveAfter(other);
    for (mlir::Operation* sink : op->getUsers()) moveAfter(sink, op);
  }

  // Rows that this entry dispatches are gathered from tokens where a rank is alone, so rather the other
  // factor.
  void readWeighted(moe::GmmWeightGradOp grad) {
    mlir::OpOperand& factor =
        grad.getA().getDefiningOp<moe::DispatchOp>() ? grad.getBMutable() : grad.getAMutable();
    Value& weighted = weighted_[{factor.get(), grad.getRowScale()}];
    if (!weighted) {
      builder_.setInsertionPoint(grad);
      const std::string name = moe::valueName(factor.get()) + "_weighted", tensor = names_.tensor(name);
      weighted = builder_.create<moe::ScaleOp>(
          grad.getLoc(), factor.get().getType(), factor.get(), grad.getRowScale(), llvm::APFloat(1.0F),
          builder_.getStringAttr(names_.node(name)), builder_.getStrArrayAttr({llvm::StringRef(tensor)}),
          moe::SplitAttr());
    }
    factor.set(weighted);
  }

  void dropUnread(Value activation) {
    mlir::Operation* const made = activation.getDefiningOp();
    if (!made->use_empty()) return;
    auto saved = llvm::dyn_cast<moe::SavedOp>(made);
    const std::string tensor = saved ? saved.getTensor().str() : "";
    made->erase();
    if (!saved) return;
    bool isRead = false;
    graph_.walk([&](moe::SavedOp other) { isRead |= other.getTensor() == tensor; });
    if (!isRead) findSave(tensor).erase();
  }

  moe::GraphOp graph_;
  mlir::OpBuilder builder_;
  TakenNames names_;
  llvm::DenseMap<std::pair<Value, Value>, Value> weighted_;  // by rows and weights
};

struct WeightRows : impl::WeightRowsBase<WeightRows> {
  using WeightRowsBase::WeightRowsBase;

  void runOnOperation() override {
    getOperation().walk([](moe::GraphOp graph) { RowWeighter(graph).run(); });
  }
};

}  // namespace
}  // namespace sluice
