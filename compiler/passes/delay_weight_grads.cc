// An entry for weight gradients alone, after derivation, when rows are weighted, amaxes known and kept rows
// encoded: so its products read what they would read in `backward`.
#include "compiler/dialect/moe_gradient.h"
#include "compiler/passes/names.h"
#include "compiler/passes/passes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

namespace sluice {

#define GEN_PASS_DEF_DELAYWEIGHTGRADS
#include "compiler/passes/passes.h.inc"

namespace {

using mlir::LogicalResult;
using mlir::Value;

constexpr llvm::StringLiteral kWeightGrads = "weight_grads";

bool isWeightGrad(mlir::Operation* op) {
  auto output = llvm::dyn_cast<moe::OutputOp>(op);
  return output && llvm::isa<moe::GmmWeightGradOp, moe::ColumnSumOp>(output.getValue().getDefiningOp());
}

// It takes the weight gradients out of one entry. 1. An amax that is an output, so that it cannot be kept, is
// measured again for them. 2. Their outputs move, and so does each node that only moved ones read, unless
// ranks communicate in it. 3. Rows that only moved nodes read are copied, because a task must wait for what
// arrives.
// 4. What moved nodes read of others is saved. 5. Sources without readers are dropped.
class WeightGradsDelayer {
 public:
  explicit WeightGradsDelayer(moe::EntryOp backward)
      : backward_(backward), builder_(backward), names_(backward->getParentOp()) {}

  LogicalResult run() {
    for (auto amax : llvm::to_vector(backward_.getOps<moe::AmaxOp>())) measureAgain(amax);
    for (mlir::Operation& op : llvm::reverse(block()))
      if (isMoved(&op)) moved_.insert(&op);
    if (failed(check())) return mlir::failure();
    for (auto dispatch : llvm::to_vector(backward_.getOps<moe::DispatchOp>())) copyUnread(dispatch);
    builder_.setInsertionPointAfter(backward_);
    auto delayed = builder_.create<moe::EntryOp>(backward_.getLoc(), builder_.getStringAttr(kWeightGrads),
                                                 mlir::FlatSymbolRefAttr::get(backward_.getSymNameAttr()));
    mlir::Block& into = delayed.getBody().emplaceBlock();
    for (const Value value : listRead()) read(value, into);
    for (mlir::Operation* op : llvm::reverse(moved_)) op->moveBefore(&into, into.end());
    dropUnreadSources();
    return mlir::success();
  }

 private:
  mlir::Block& block() { return backward_.getBody().front(); }

  bool isMoved(mlir::Operation* op) const {
    if (!llvm::isa<moe::NodeOp>(op) || moe::isDispatch(op)) return isWeightGrad(op);
    return llvm::all_of(op->getUsers(), [&](mlir::Operation* user) { return moved_.contains(user); });
  }

  LogicalResult check() {
    if (llvm::none_of(moved_, isWeightGrad))
      return backward_.emitError("entry '")
             << kBackward << "' gives no weight gradient, expected some that can be delayed";
    if (llvm::all_of(backward_.getOps<moe::NodeOp>(),
                     [&](moe::NodeOp node) { return moved_.contains(node); }))
      return backward_.emitError("entry '")
             << kBackward << "' computes only weight gradients, expected work that need not be delayed";
    return mlir::success();
  }

  void measureAgain(moe::AmaxOp amax) {
    const auto isSink = [](mlir::Operation* user) { return llvm::isa<moe::OutputOp>(user); };
    if (llvm::none_of(amax->getUsers(), isSink)) return;
    builder_.setInsertionPointAfter(amax);
    auto again = llvm::cast<moe::AmaxOp>(builder_.clone(*amax));
    const std::string name = moe::valueName(amax.getAmax()) + "_again";
    again.setNodeAttr(builder_.getStringAttr(names_.node(name)));
    again.setTensorsAttr(builder_.getStrArrayAttr({llvm::StringRef(names_.tensor(name))}));
    amax.getAmax().replaceUsesWithIf(again.getAmax(), [](mlir::OpOperand& use) {
      return llvm::isa<moe::GmmWeightGradOp>(use.getOwner());
    });
    if (again->use_empty()) again.erase();
  }

  void copyUnread(moe::DispatchOp dispatch) {
    const auto isMoved = [&](mlir::Operation* user) { return moved_.contains(user); };
    if (!llvm::all_of(dispatch->getUsers(), isMoved)) return;
    builder_.setInsertionPointAfter(dispatch);
    const std::string name = moe::valueName(dispatch.getRows()) + "_kept", tensor = names_.tensor(name);
    auto copy =
        builder_.create<moe::ScaleOp>(dispatch.getLoc(), dispatch.getRows().getType(), dispatch.getRows(),
                                      Value(), llvm::APFloat(1.0F), builder_.getStringAttr(names_.node(name)),
                                      builder_.getStrArrayAttr({llvm::StringRef(tensor)}), moe::SplitAttr());
    dispatch.getRows().replaceAllUsesExcept(copy.getScaled(), copy);
  }

  // What the moved ones read, in the order in which `backward` has it: every entry has the routing.
  llvm::SmallVector<Value> listRead() {
    llvm::SmallVector<Value> values;
    for (mlir::Operation& op : block())
      for (const Value result : op.getResults()) {
        const auto isRead = [&](mlir::Operation* user) { return moved_.contains(user); };
        const bool isRouting = llvm::isa<moe::RoutingType>(result.getType());
        if (!moved_.contains(&op) && (isRouting || llvm::any_of(result.getUsers(), isRead)))
          values.push_back(result);
      }
    return values;
  }

  // Makes the value a source of the new entry.
  void read(Value value, mlir::Block& into) {
    mlir::Operation* const from = value.getDefiningOp();
    builder_.setInsertionPointToEnd(&into);
    Value here;
    if (llvm::isa<moe::InputOp, moe::SavedOp>(from)) {
      here = builder_.clone(*from)->getResult(0);
    } else {
      const std::string own = moe::tensorName(value).str();
      const mlir::StringAttr name =
          builder_.getStringAttr(own.empty() ? names_.tensor(moe::valueName(value)) : own);
      here = builder_.create<moe::SavedOp>(value.getLoc(), value.getType(), name);
      builder_.setInsertionPointToEnd(&block());
      builder_.create<moe::SaveOp>(value.getLoc(), name, value);
    }
    value.replaceUsesWithIf(here, [&](mlir::OpOperand& use) { return moved_.contains(use.getOwner()); });
  }

  // The routing stays: every entry has one.
  void dropUnreadSources() {
    for (mlir::Operation& op : llvm::make_early_inc_range(block()))
      if (llvm::isa<moe::InputOp, moe::SavedOp>(op) && op.use_empty() &&
          llvm::isa<moe::MoeTensorType>(op.getResult(0).getType()))
        op.erase();
  }

  moe::EntryOp backward_;
  mlir::OpBuilder builder_;
  TakenNames names_;
  llvm::SetVector<mlir::Operation*> moved_;  // the last one first
};

struct DelayWeightGrads : impl::DelayWeightGradsBase<DelayWeightGrads> {
  using DelayWeightGradsBase::DelayWeightGradsBase;

  void runOnOperation() override {
    for (auto graph : getOperation().getOps<moe::GraphOp>())
      if (failed(delay(graph))) return signalPassFailure();
  }

  static LogicalResult delay(moe::GraphOp graph) {
    const auto find = [&](llvm::StringRef name) {
      const auto entries = graph.getOps<moe::EntryOp>();
      const auto found =
          llvm::find_if(entries, [&](moe::EntryOp entry) { return entry.getSymName() == name; });
      return found == entries.end() ? moe::EntryOp() : *found;
    };
    if (moe::EntryOp taken = find(kWeightGrads))
      return taken.emitError("entry '")
             << kWeightGrads << "' has the name of the entry for delayed gradients";
    if (moe::EntryOp backward = find(kBackward)) return WeightGradsDelayer(backward).run();
    return graph.emitError("graph '") << graph.getSymName() << "' has no entry '" << kBackward
                                      << "', expected one whose weight gradients can be delayed";
  }
};

}  // namespace
}  // namespace sluice
