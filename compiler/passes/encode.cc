// Codes for tensors, after derivation, when all readers are known: for rows that the forward keeps, and for
// tokens that products round where their rows have arrived.
#include <optional>
#include <string>

#include "compiler/dialect/element_type.h"
#include "compiler/dialect/moe_gradient.h"
#include "compiler/passes/names.h"
#include "compiler/passes/passes.h"
#include "llvm/ADT/STLExtras.h"
#include "mlir/IR/Builders.h"
#include "runtime/base/rounding.h"
#include "runtime/program/program.h"

namespace sluice {

#define GEN_PASS_DEF_ENCODEDISPATCHED
#define GEN_PASS_DEF_ENCODEKEPT
#include "compiler/passes/passes.h.inc"

namespace {

using mlir::LogicalResult;
using mlir::Value;

// How a value is encoded: by an amax if the rounding is scaled; else in blocks down its columns if `experts`
// is given (the dimension of experts of end scales, which end scales of tokens do not have); else in blocks
// along its rows.
struct EncodeForm {
  Rounding rounding = Rounding::kNone;
  Value amax = {};
  Value scale = {};  // the value itself has codes, and this scale
  std::optional<int64_t> experts = {};
};

// The codes NAME_codes of `value`, with their scales NAME_scales and NAME_end_scales if they have some, at
// the builder's place.
moe::EncodeOp createEncode(mlir::OpBuilder& builder, TakenNames& names, const std::string& name, Value value,
                           const EncodeForm& form) {
  const moe::MoeTensorType type = moeTensorType(value);
  const int64_t extent = type.getShape().front(), n = type.getShape().back();
  mlir::MLIRContext* const context = builder.getContext();
  const auto tensor = [&](llvm::ArrayRef<int64_t> shape, DType element) {
    return moe::MoeTensorType::get(context, shape, mlirElementType(context, element));
  };
  llvm::SmallVector<std::string> taken = {names.tensor(name + "_codes")};
  llvm::SmallVector<mlir::Type> scales;
  if (!findInfo(form.rounding).isScaled) {
    taken.push_back(names.tensor(name + "_scales"));
    scales.push_back(tensor({extent, n / kMxBlock}, DType::kBF16));
    if (form.experts) {
      taken.push_back(names.tensor(name + "_end_scales"));
      llvm::SmallVector<int64_t> ends = {n};
      if (!type.hasTokens()) ends.insert(ends.begin(), *form.experts);
      scales.push_back(tensor(ends, DType::kBF16));
    }
  }
  const llvm::SmallVector<llvm::StringRef> tensors(taken.begin(), taken.end());
  return builder.create<moe::EncodeOp>(value.getLoc(), tensor({extent, n}, DType::kF8_E4M3), scales, value,
                                       form.amax, form.scale, form.rounding,
                                       builder.getStringAttr(names.node(name + "_encode")),
                                       builder.getStrArrayAttr(tensors), moe::SplitAttr());
}

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
