// Codes for tokens that products round where their rows have arrived, after derivation, when all readers are
// known.
#include "compiler/dialect/moe_gradient.h"
#include "compiler/passes/encode.h"
#include "compiler/passes/passes.h"
#include "llvm/ADT/STLExtras.h"
#include "runtime/base/rounding.h"

namespace sluice {

#define GEN_PASS_DEF_ENCODEDISPATCHED
#include "compiler/passes/passes.h.inc"

namespace {

using mlir::LogicalResult;
using mlir::Value;

// It encodes the dispatched tokens of one graph.
class DispatchEncoder {
 public:
  explicit DispatchEncoder(moe::GraphOp graph) : graph_(graph), builder_(graph), names_(graph) {}

  LogicalResult run() {
    for (auto entry : graph_.getOps<moe::EntryOp>())
      for (auto dispatch : llvm::to_vector(entry.getOps<moe::DispatchOp>()))
        if (sendsTokens(dispatch, entry) && failed(encode(dispatch))) return mlir::failure();
    return mlir::success();
  }

 private:
  // Not gradients: a derived entry may dispatch again what the first one has.
  bool sendsTokens(moe::DispatchOp dispatch, moe::EntryOp entry) {
    auto input = dispatch.getTokens().getDefiningOp<moe::InputOp>();
    if (!entry.getAfter()) {
      if (input) sent_.insert(input.getTensor());
      return true;
    }
    return dispatch.getTokens().getDefiningOp<moe::SavedOp>() || (input && sent_.contains(input.getTensor()));
  }

  // How a reader of rows rounds them, if codes in blocks serve it.
  static std::optional<Rounding> findRounding(mlir::OpOperand& use) {
    const unsigned operand = use.getOperandNumber();
    if (auto product = llvm::dyn_cast<moe::GmmOp>(use.getOwner()); product && operand == 0)
      return product.getRoundA();
    if (auto encode = llvm::dyn_cast<moe::EncodeOp>(use.getOwner())) return encode.getRoundA();
    auto grad = llvm::dyn_cast<moe::GmmWeightGradOp>(use.getOwner());
    if (!grad || operand > 1 || grad.getA() == grad.getB() || grad.getScales()) return {};
    if (grad.getRowScale() && grad.getScaleA() == (operand == 0)) return {};
    return operand == 0 ? grad.getRoundA() : grad.getRoundB();
  }

  // The rounding of all readers.
  mlir::FailureOr<Rounding> commonRounding(moe::DispatchOp dispatch) {
    std::optional<Rounding> common;
    for (mlir::OpOperand& use : dispatch.getRows().getUses()) {
      if (llvm::isa<moe::OutputOp>(use.getOwner())) continue;
      const std::optional<Rounding> rounding = findRounding(use);
      if (rounding && isEncodableInBlocks(*rounding) && common.value_or(*rounding) == *rounding) {
        common = rounding;
        continue;
      }
      auto node = llvm::dyn_cast<moe::NodeOp>(use.getOwner());
      return moe::nodeError(dispatch)
             << " cannot send codes: " << (node ? "node '" + node.getNode().str() + "'" : "a later entry")
             << " reads '" << moe::valueName(dispatch.getRows()) << "' as "
             << (rounding ? "other codes" : "bf16");
    }
    if (dispatch.getWeights() || !common)
      return moe::nodeError(dispatch) << " cannot send codes: it "
                                      << (common ? "sends weights, too" : "has no reader that rounds rows");
    return *common;
  }

  // Rows that are an output, which a separate backward reads, do not exist any more.
  LogicalResult encode(moe::DispatchOp dispatch) {
    const mlir::FailureOr<Rounding> rounding = commonRounding(dispatch);
    if (failed(rounding)) return mlir::failure();
    moe::EncodeOp tokens = encoded(dispatch.getTokens(), *rounding);
    const Value rows = dispatch.getRows();
    const std::string name = moe::valueName(rows);
    const std::string results[] = {names_.tensor(name + "_sent"), names_.tensor(name + "_sent_scales")};
    const auto ofRows = [&](Value value) {
      llvm::SmallVector<int64_t> shape(moeTensorType(value).getShape());
      shape.front() = moe::MoeTensorType::kRows;
      return moe::MoeTensorType::get(builder_.getContext(), shape, moeTensorType(value).getElementType());
    };
    builder_.setInsertionPoint(dispatch);
    auto sent = builder_.create<moe::DispatchCodesOp>(
        dispatch.getLoc(), ofRows(tokens.getCodes()), ofRows(tokens.getScales()[0]), tokens.getCodes(),
        tokens.getScales()[0], dispatch.getRouting(), dispatch.getNodeAttr(),
        builder_.getStrArrayAttr({llvm::StringRef(results[0]), llvm::StringRef(results[1])}),
        dispatch.getSplitAttr());
    moe::EncodeOp kept;
    for (mlir::Operation* user : llvm::to_vector(rows.getUsers()))
      if (auto product = llvm::dyn_cast<moe::GmmOp>(user)) {
        product.getRowsMutable().assign(sent.getRows());
        product.getRowScaleMutable().assign(sent.getRowScales());
      } else if (auto encode = llvm::dyn_cast<moe::EncodeOp>(user)) {
        encode.getValueMutable().assign(sent.getRows());
        encode.getValueScaleMutable().assign(sent.getRowScales());
      } else if (auto grad = llvm::dyn_cast<moe::GmmWeightGradOp>(user)) {
        builder_.setInsertionPointAfter(sent);
        if (!kept)
          kept = createEncode(
              builder_, names_, name, sent.getRows(),
              {.rounding = *rounding, .scale = sent.getRowScales(), .experts = graph_.getExpertsOfRank()});
        (grad.getA() == rows ? grad.getAMutable() : grad.getBMutable()).assign(kept.getCodes());
        grad.getScalesMutable().assign(kept.getScales()[0]);
        grad.getEndScalesMutable().assign(kept.getScales()[1]);
      } else {
        user->erase();
      }
    dispatch.erase();
    return mlir::success();
  }

  // Tokens that are sent several times are encoded only once.
  moe::EncodeOp encoded(Value tokens, Rounding rounding) {
    moe::EncodeOp& known = encoded_[{tokens, static_cast<int>(rounding)}];
    if (known) return known;
    builder_.setInsertionPointAfterValue(tokens);
    return known = createEncode(builder_, names_, moe::valueName(tokens), tokens, {.rounding = rounding});
  }

  moe::GraphOp graph_;
  mlir::OpBuilder builder_;
  TakenNames names_;
  llvm::StringSet<> sent_;  // inputs
  llvm::DenseMap<std::pair<Value, int>, moe::EncodeOp> encoded_;
};

struct EncodeDispatched : impl::EncodeDispatchedBase<EncodeDispatched> {
  using EncodeDispatchedBase::EncodeDispatchedBase;

  void runOnOperation() override {
    for (auto graph : getOperation().getOps<moe::GraphOp>())
      if (failed(DispatchEncoder(graph).run())) return signalPassFailure();
  }
};

}  // namespace
}  // namespace sluice
