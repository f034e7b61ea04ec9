// Codes for what the forward keeps, after derivation, when all readers are known.
#include "compiler/dialect/element_type.h"
#include "compiler/dialect/moe_gradient.h"
#include "compiler/passes/common.h"
#include "compiler/passes/passes.h"
#include "llvm/ADT/STLExtras.h"
#include "runtime/base/rounding.h"

namespace sluice {

#define GEN_PASS_DEF_ENCODEKEPT
#include "compiler/passes/passes.h.inc"

namespace {

using mlir::Value;

// Of one graph.
class KeptEncoder {
 public:
  explicit KeptEncoder(moe::GraphOp graph) : graph_(graph), builder_(graph), names_(graph) {}

  void run() {
    llvm::SmallVector<moe::SaveOp> saves;
    graph_.walk([&](moe::SaveOp save) { saves.push_back(save); });
    for (moe::SaveOp save : saves)
      if (const std::optional<Rounding> rounding = roundingOf(save)) encode(save, *rounding);
  }

 private:
  static constexpr size_t kParts = 3;  // codes and their scales

  llvm::SmallVector<moe::SavedOp> readersOf(moe::SaveOp save) {
    llvm::SmallVector<moe::SavedOp> readers;
    graph_.walk([&](moe::SavedOp saved) {
      if (saved.getTensor() == save.getTensor()) readers.push_back(saved);
    });
    return readers;
  }

  // How all that read what is kept round it, if codes serve them.
  std::optional<Rounding> roundingOf(moe::SaveOp save) {
    const auto type = llvm::dyn_cast<moe::MoeTensorType>(save.getValue().getType());
    if (!type || !type.getElementType().isBF16() || type.getShape().back() % kMxBlock != 0) return {};
    std::optional<Rounding> common;
    for (moe::SavedOp saved : readersOf(save))
      for (mlir::OpOperand& use : saved.getValue().getUses()) {
        auto grad = llvm::dyn_cast<moe::GmmWeightGradOp>(use.getOwner());
        if (!grad || grad.getA() == grad.getB() || use.getOperandNumber() > 1) return {};
        const bool isA = use.getOperandNumber() == 0;
        if (grad.getRowScale() && grad.getScaleA() == isA) return {};
        const Rounding rounding = (isA ? grad.getRoundA() : grad.getRoundB()).value_or(Rounding::kNone);
        if (!isEncodable(rounding) || (common && *common != rounding)) return {};
        common = rounding;
      }
    return common;
  }

  void encode(moe::SaveOp save, Rounding rounding) {
    const std::string name = save.getTensor().str();
    auto made = encoded(save, name, rounding);
    llvm::SmallVector<std::string, kParts> names;
    for (Value part : made->getResults()) {
      names.push_back(moe::tensorName(part).str());
      builder_.setInsertionPoint(save);
      builder_.create<moe::SaveOp>(save.getLoc(), builder_.getStringAttr(names.back()), part);
    }
    for (moe::SavedOp saved : readersOf(save)) {
      builder_.setInsertionPoint(saved);
      llvm::SmallVector<Value, kParts> parts;
      for (size_t i = 0; i < kParts; ++i)
        parts.push_back(builder_.create<moe::SavedOp>(saved.getLoc(), made->getResult(i).getType(),
                                                      builder_.getStringAttr(names[i])));
      for (mlir::Operation* user : llvm::to_vector(saved.getValue().getUsers())) {
        auto grad = llvm::cast<moe::GmmWeightGradOp>(user);
        (grad.getA() == saved.getValue() ? grad.getAMutable() : grad.getBMutable()).assign(parts[0]);
        grad.getScalesMutable().assign(parts[1]);
        grad.getEndScalesMutable().assign(parts[2]);
      }
      saved.erase();
    }
    save.erase();
  }

  // After the last node that reads the rows: nothing in this entry waits for it.
  moe::EncodeOp encoded(moe::SaveOp save, const std::string& name, Rounding rounding) {
    const Value rows = save.getValue();
    mlir::Operation* last = rows.getDefiningOp();
    for (mlir::Operation* user : rows.getUsers())
      if (llvm::isa<moe::NodeOp>(user) && last->isBeforeInBlock(user)) last = user;
    builder_.setInsertionPointAfter(last);
    const moe::MoeTensorType type = tensorOf(rows);
    const int64_t extent = type.getShape().front(), n = type.getShape().back();
    mlir::MLIRContext* const context = type.getContext();
    llvm::SmallVector<int64_t> ends = {n};
    if (!type.hasTokens()) ends.insert(ends.begin(), graph_.getExpertsOfRank());
    const auto tensor = [&](llvm::ArrayRef<int64_t> shape, DType element) {
      return moe::MoeTensorType::get(context, shape, elementTypeOf(context, element));
    };
    llvm::SmallVector<llvm::StringRef> tensors;
    std::string taken[kParts];
    for (const auto& [to, suffix] : llvm::zip(taken, std::array{"_codes", "_scales", "_end_scales"}))
      tensors.push_back(to = names_.tensor(name + suffix));
    return builder_.create<moe::EncodeOp>(
        rows.getLoc(), tensor({extent, n}, DType::kF8_E4M3), tensor({extent, n / kMxBlock}, DType::kBF16),
        tensor(ends, DType::kBF16), rows, rounding, builder_.getStringAttr(names_.node(name + "_encode")),
        builder_.getStrArrayAttr(tensors), moe::SplitAttr());
  }

  moe::GraphOp graph_;
  mlir::OpBuilder builder_;
  TakenNames names_;
};

struct EncodeKept : impl::EncodeKeptBase<EncodeKept> {
  using EncodeKeptBase::EncodeKeptBase;

  void runOnOperation() override {
    getOperation().walk([](moe::GraphOp graph) { KeptEncoder(graph).run(); });
  }
};

}  // namespace
}  // namespace sluice
