// Rounding of the factors of products: the roundings themselves, before derivation, which carries them on;
// and amaxes for factors that are rounded by one, after derivation, when all products are known.
#include "compiler/dialect/moe_gradient.h"
#include "compiler/passes/names.h"
#include "compiler/passes/passes.h"
#include "runtime/base/encodings.h"
#include "runtime/base/rounding.h"

namespace sluice {

#define GEN_PASS_DEF_ROUNDPRODUCTS
#define GEN_PASS_DEF_SCALEFACTORS
#include "compiler/passes/passes.h.inc"

namespace {

using mlir::LogicalResult;
using mlir::Value;

struct RoundProducts : impl::RoundProductsBase<RoundProducts> {
  using RoundProductsBase::RoundProductsBase;

  void runOnOperation() override {
    for (auto graph : getOperation().getOps<moe::GraphOp>())
      if (failed(round(graph))) return signalPassFailure();
  }

  LogicalResult round(moe::GraphOp graph) {
    const auto entries = graph.getOps<moe::EntryOp>();
    if (std::distance(entries.begin(), entries.end()) > 1)
      return graph.emitError("graph '")
             << graph.getSymName()
             << "' has several entries, expected one: which products read gradients is "
                "known where the backward is derived";
    mlir::WalkResult result = graph.walk([](moe::GmmWeightGradOp grad) {
      moe::nodeError(grad)
          << " is a weight gradient of the graph, expected a graph whose backward is derived";
      return mlir::WalkResult::interrupt();
    });
    if (result.wasInterrupted()) return mlir::failure();
    const Expected<Encodings> encodings = parseEncodings(std::string(encode));
    if (!encodings) return graph.emitError() << encodings.error().message;
    if (!encodings->rows->rounds())
      return graph.emitError("encode: products round nothing to '") << encode << "'";
    const auto attribute = [&](const Encoding* each) {
      return moe::RoundingAttr::get(&getContext(), each->rounding);
    };
    graph.walk([&](moe::GmmOp product) {
      product.setRoundAAttr(attribute(encodings->rows));
      product.setRoundBAttr(attribute(encodings->trained));
      product.setRoundGradsAttr(attribute(encodings->grads));
    });
    return mlir::success();
  }
};

bool isScaled(std::optional<Rounding> rounding) { return rounding && findInfo(*rounding).isScaled; }

// It scales the factors of one entry.
class EntryScaler {
 public:
  EntryScaler(moe::EntryOp entry, bool delayed, bool outputs)
      : entry_(entry),
        builder_(entry),
        delayed_(delayed),
        outputs_(outputs || delayed),
        names_(entry->getParentOp()) {
    entry->getParentOp()->walk([&](moe::AmaxOp amax) {
      if (auto input = amax.getA().getDefiningOp<moe::InputOp>()) measuredInputs_.insert(input.getTensor());
    });
  }

  LogicalResult run() {
    for (auto product : llvm::to_vector(entry_.getOps<moe::GmmOp>())) {
      const int64_t experts = countExperts(product.getWeight());
      if (isScaled(product.getRoundA()))
        product.getRowAmaxMutable().assign(findAmax(product.getRows(), experts));
      if (!isScaled(product.getRoundB())) continue;
      const mlir::FailureOr<Value> amax = amaxOfWeight(product, experts);
      if (failed(amax)) return mlir::failure();
      product.getWeightAmaxMutable().assign(*amax);
    }
    for (auto grad : llvm::to_vector(entry_.getOps<moe::GmmWeightGradOp>())) {
      const int64_t experts = countExperts(grad.getGrad());
      if (isScaled(grad.getRoundA())) grad.getAAmaxMutable().assign(findAmax(grad.getA(), experts));
      if (isScaled(grad.getRoundB())) grad.getBAmaxMutable().assign(findAmax(grad.getB(), experts));
    }
    return mlir::success();
  }

 private:
  static constexpr int64_t kOfTokens = 0;

  // The dimension of experts of a weight or its gradient; kOfTokens if it has none.
  static int64_t countExperts(Value weight) {
    const llvm::ArrayRef<int64_t> shape = llvm::cast<moe::MoeTensorType>(weight.getType()).getShape();
    return shape.size() == 3 ? shape[0] : kOfTokens;
  }

  moe::MoeTensorType amaxType(int64_t experts) {
    const int64_t shape[] = {experts, 1};
    return moe::MoeTensorType::get(builder_.getContext(),
                                   llvm::ArrayRef(shape).drop_front(experts == kOfTokens ? 1 : 0),
                                   builder_.getF32Type());
  }

  // The amax by which rows are rounded: measured in this step, or given by the caller. This step's amax is an
  // output for the caller; if an earlier entry kept the rows, or reads them too, it is an output of that
  // entry.
  Value findAmax(Value rows, int64_t experts) {
    Value& known = amaxes_[rows];
    if (known) return known;
    const std::string name = moe::valueName(rows);
    auto input = rows.getDefiningOp<moe::InputOp>();
    const bool isKnown =
        rows.getDefiningOp<moe::SavedOp>() || (input && measuredInputs_.contains(input.getTensor()));
    const bool isOutput = outputs_ && !isKnown;
    const Value found = isOutput || !delayed_ ? measured(rows, name, experts) : Value();
    if (delayed_) {
      builder_.setInsertionPointToStart(&entry_.getBody().front());
      known = builder_.create<moe::InputOp>(rows.getLoc(), amaxType(experts),
                                            builder_.getStringAttr(name + "_amax_used"), moe::ShardingAttr());
    } else {
      known = found;
    }
    if (!isOutput) return known;
    builder_.setInsertionPointToEnd(&entry_.getBody().front());
    builder_.create<moe::OutputOp>(rows.getLoc(), builder_.getStringAttr(moe::tensorName(found)), found,
                                   moe::ShardingAttr());
    return known;
  }

  Value measured(Value rows, const std::string& name, int64_t experts) {
    builder_.setInsertionPointAfterValue(rows);
    const std::string tensor = names_.tensor(name + "_amax");
    return builder_.create<moe::AmaxOp>(
        rows.getLoc(), amaxType(experts), rows, builder_.getStringAttr(names_.node(name + "_amax")),
        builder_.getStrArrayAttr({llvm::StringRef(tensor)}), moe::SplitAttr());
  }

  // The caller knows its weights before the step.
  mlir::FailureOr<Value> amaxOfWeight(moe::GmmOp product, int64_t experts) {
    const Value weight = product.getWeight();
    Value& known = amaxes_[weight];
    if (known) return known;
    auto input = weight.getDefiningOp<moe::InputOp>();
    if (!input) {
      moe::nodeError(product) << " rounds the weight '" << moe::valueName(weight)
                              << "' by its amax, but it is no input of the entry";
      return mlir::failure();
    }
    builder_.setInsertionPointAfter(input);
    return known = builder_.create<moe::InputOp>(input.getLoc(), amaxType(experts),
                                                 builder_.getStringAttr(input.getTensor() + "_amax"),
                                                 moe::ShardingAttr());
  }

  moe::EntryOp entry_;
  mlir::OpBuilder builder_;
  const bool delayed_;
  const bool outputs_;
  TakenNames names_;
  llvm::StringSet<> measuredInputs_;  // by earlier entries
  llvm::DenseMap<Value, Value> amaxes_;
};

struct ScaleFactors : impl::ScaleFactorsBase<ScaleFactors> {
  using ScaleFactorsBase::ScaleFactorsBase;

  void runOnOperation() override {
    const mlir::WalkResult result = getOperation().walk([&](moe::EntryOp entry) {
      return failed(EntryScaler(entry, delayed, outputs).run()) ? mlir::WalkResult::interrupt()
                                                                : mlir::WalkResult::advance();
    });
    if (result.wasInterrupted()) signalPassFailure();
  }
};

}  // namespace

}  // namespace sluice
