// Codes for what the forward keeps, after derivation, when all readers are known.
#include "compiler/dialect/element_type.h"
#include "compiler/dialect/moe_gradient.h"
#include "compiler/passes/encode.h"
#include "compiler/passes/passes.h"
#include "llvm/ADT/STLExtras.h"
#include "runtime/base/rounding.h"

namespace sluice {

#define GEN_PASS_DEF_ENCODEKEPT
#include "compiler/passes/passes.h.inc"

namespace {

using mlir::Value;

// How rows are rounded. An amax is `given` by an input of the entry that keeps them, or measured there.
struct Form {
  Rounding rounding = Rounding::kNone;
  Value given = {};
  bool operator==(const Form&) const = default;

  bool isMeasured() const { return findInfo(rounding).isScaled && !given; }
};

// It encodes the kept rows of one graph.
class KeptEncoder {
 public:
  explicit KeptEncoder(moe::GraphOp graph) : graph_(graph), builder_(graph), names_(graph) {}

  void run() {
    llvm::SmallVector<moe::SaveOp> saves;
    graph_.walk([&](moe::SaveOp save) { saves.push_back(save); });
    for (moe::SaveOp save : saves)
      if (const std::optional<Form> form = findForm(save)) encode(save, *form);
  }

 private:
  llvm::SmallVector<moe::SavedOp> listReaders(moe::SaveOp save) {
    llvm::SmallVector<moe::SavedOp> readers;
    graph_.walk([&](moe::SavedOp saved) {
      if (saved.getTensor() == save.getTensor()) readers.push_back(saved);
    });
    return readers;
  }

  // How all that read what is kept round it, if codes serve them.
  std::optional<Form> findForm(moe::SaveOp save) {
    const auto type = llvm::dyn_cast<moe::MoeTensorType>(save.getValue().getType());
    if (!type || !type.getElementType().isBF16()) return {};
    std::optional<Form> common;
    for (moe::SavedOp saved : listReaders(save))
      for (mlir::OpOperand& use : saved.getValue().getUses()) {
        if (isOwnAmax(use)) continue;
        const std::optional<Form> form = findForm(use, save);
        if (!form || (common && *common != *form)) return {};
        common = form;
      }
    const bool hasBlocks = type.getShape().back() % kMxBlock == 0;
    return common && (hasBlocks || findInfo(common->rounding).isScaled) ? common : std::nullopt;
  }

  // Returns the form in which a weight gradient uses the value as a factor; other uses have none.
  static std::optional<Form> findForm(mlir::OpOperand& use, moe::SaveOp save) {
    auto grad = llvm::dyn_cast<moe::GmmWeightGradOp>(use.getOwner());
    if (!grad || grad.getA() == grad.getB() || use.getOperandNumber() > 1) return {};
    const bool isA = use.getOperandNumber() == 0;
    if (grad.getRowScale() && grad.getScaleA() == isA) return {};
    const Rounding rounding = (isA ? grad.getRoundA() : grad.getRoundB()).value_or(Rounding::kNone);
    if (!isEncodable(rounding)) return {};
    if (!findInfo(rounding).isScaled) return Form{rounding};
    const Value amax = isA ? grad.getAAmax() : grad.getBAmax();
    if (!amax) return {};
    if (auto measured = amax.getDefiningOp<moe::AmaxOp>(); measured && measured.getA() == use.get())
      return Form{rounding};
    auto input = amax.getDefiningOp<moe::InputOp>();
    for (auto given : save->getParentOfType<moe::EntryOp>().getOps<moe::InputOp>())
      if (input && given.getTensor() == input.getTensor()) return Form{rounding, given.getValue()};
    return {};
  }

  // Whether the use measures the amax of a factor, for nothing but the products that read the factor.
  static bool isOwnAmax(mlir::OpOperand& use) {
    auto amax = llvm::dyn_cast<moe::AmaxOp>(use.getOwner());
    return amax && llvm::all_of(amax.getAmax().getUsers(), [&](mlir::Operation* user) {
             auto grad = llvm::dyn_cast<moe::GmmWeightGradOp>(user);
             return grad && (grad.getAAmax() != amax.getAmax() || grad.getA() == use.get()) &&
                    (grad.getBAmax() != amax.getAmax() || grad.getB() == use.get());
           });
  }

  // 1. Codes are made where the rows are, by an amax if they need one. 2. They, their scales and an amax that
  // was measured are kept. 3. Later entries read these.
  void encode(moe::SaveOp save, const Form& form) {
    const std::string name = save.getTensor().str();
    const Value amax = form.isMeasured() ? measured(save, name) : form.given;
    llvm::SmallVector<Value> parts = encoded(save, name, form.rounding, amax)->getResults();
    const size_t made = parts.size();
    if (form.isMeasured()) parts.push_back(amax);
    for (const Value part : parts) keep(save, part);
    for (moe::SavedOp saved : listReaders(save)) {
      builder_.setInsertionPoint(saved);
      llvm::SmallVector<Value> kept;
      for (const Value part : parts)
        kept.push_back(builder_.create<moe::SavedOp>(saved.getLoc(), part.getType(), moe::tensorName(part)));
      for (mlir::Operation* user : llvm::to_vector(saved.getValue().getUsers())) {
        auto grad = llvm::dyn_cast<moe::GmmWeightGradOp>(user);
        if (!grad) continue;
        const bool isA = grad.getA() == saved.getValue();
        (isA ? grad.getAMutable() : grad.getBMutable()).assign(kept[0]);
        if (form.isMeasured()) (isA ? grad.getAAmaxMutable() : grad.getBAmaxMutable()).assign(kept.back());
        if (made == 1) continue;
        grad.getScalesMutable().assign(kept[1]);
        grad.getEndScalesMutable().assign(kept[2]);
      }
      for (mlir::Operation* user : llvm::to_vector(saved.getValue().getUsers())) user->erase();  // amaxes
      saved.erase();
    }
    save.erase();
  }

  void keep(moe::SaveOp save, Value part) {
    builder_.setInsertionPoint(save);
    builder_.create<moe::SaveOp>(save.getLoc(), builder_.getStringAttr(moe::tensorName(part)), part);
  }

  // The amax of the rows that the entry measures, or another one if that leaves it already.
  Value measured(moe::SaveOp save, const std::string& name) {
    const Value rows = save.getValue();
    for (mlir::Operation* user : rows.getUsers())
      if (auto amax = llvm::dyn_cast<moe::AmaxOp>(user);
          amax && !moe::tensorName(amax.getAmax()).empty() &&
          llvm::none_of(amax.getAmax().getUsers(),
                        [](mlir::Operation* sink) { return llvm::isa<moe::OutputOp, moe::SaveOp>(sink); }))
        return amax.getAmax();
    builder_.setInsertionPointAfterValue(rows);
    const std::string tensor = names_.tensor(name + "_amax");
    llvm::SmallVector<int64_t> shape = {1};
    if (!moeTensorType(rows).hasTokens()) shape.insert(shape.begin(), graph_.getExpertsOfRank());
    mlir::MLIRContext* const context = builder_.getContext();
    const auto type = moe::MoeTensorType::get(context, shape, mlirElementType(context, DType::kF32));
    return builder_.create<moe::AmaxOp>(
        rows.getLoc(), type, rows, builder_.getStringAttr(names_.node(name + "_amax")),
        builder_.getStrArrayAttr({llvm::StringRef(tensor)}), moe::SplitAttr());
  }

  // After the last node that reads the rows: nothing in this entry waits for it.
  moe::EncodeOp encoded(moe::SaveOp save, const std::string& name, Rounding rounding, Value amax) {
    const Value rows = save.getValue();
    mlir::Operation* last = rows.getDefiningOp();
    for (mlir::Operation* user : rows.getUsers())
      if (llvm::isa<moe::NodeOp>(user) && last->isBeforeInBlock(user)) last = user;
    builder_.setInsertionPointAfter(last);
    return createEncode(builder_, names_, name, rows,
                        {.rounding = rounding, .amax = amax, .experts = graph_.getExpertsOfRank()});
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
