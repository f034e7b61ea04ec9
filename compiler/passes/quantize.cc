// Codes for weights, before derivation, and for the rows that are multiplied by them, after fusion.
#include "compiler/dialect/element_type.h"
#include "compiler/dialect/moe_gradient.h"
#include "compiler/passes/names.h"
#include "compiler/passes/passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "runtime/base/encodings.h"

namespace sluice {

#define GEN_PASS_DEF_QUANTIZEWEIGHTS
#define GEN_PASS_DEF_QUANTIZEROWS
#include "compiler/passes/passes.h.inc"

namespace {

using mlir::LogicalResult;
using mlir::Value;

moe::MoeTensorType withElements(moe::MoeTensorType type, mlir::Type element) {
  return moe::MoeTensorType::get(type.getContext(), type.getShape(), element);
}

mlir::Type codesType(mlir::MLIRContext* context) { return mlirElementType(context, DType::kI8); }

// The dimension of a product's weight, from the end, that its columns have.
size_t columnsFromEnd(moe::GmmOp product) { return product.getTranspose() ? 2 : 1; }

// --- Weights -------------------------------------------------------------------------------------------

struct QuantizeWeights : impl::QuantizeWeightsBase<QuantizeWeights> {
  using QuantizeWeightsBase::QuantizeWeightsBase;

  void runOnOperation() override {
    for (auto graph : getOperation().getOps<moe::GraphOp>())
      if (failed(quantize(graph))) return signalPassFailure();
  }

  // The first product that reads a weight says along which dimension it has a scale. A graph that declares
  // codes decides which weights have some.
  LogicalResult quantize(moe::GraphOp graph) {
    const Expected<Encodings> encodings = parseEncodings(std::string(encode));
    if (!encodings) return graph.emitError() << encodings.error().message;
    llvm::MapVector<llvm::StringRef, size_t> columns;
    bool declares = false, mayHaveCodes = false;
    graph.walk([&](moe::GmmOp product) {
      declares |= static_cast<bool>(product.getWeightScale());
      auto input = product.getWeight().getDefiningOp<moe::InputOp>();
      if (!input) return;
      columns.insert({input.getTensor(), columnsFromEnd(product)});
      mayHaveCodes |= isFrozenBf16(input);
    });
    if (failed(checkNames(graph, *encodings, columns))) return mlir::failure();
    if (declares) return mlir::success();
    if (encodings->weights->hasCodes() && !mayHaveCodes)
      return graph.emitError("graph '") << graph.getSymName()
                                        << "' has no weight of a product that could have codes: expected an "
                                           "input of bf16 that is not trained";
    LogicalResult result = mlir::success();
    graph.walk([&](moe::InputOp input) {
      const auto found = columns.find(input.getTensor());
      if (found == columns.end() || !isFrozenBf16(input) || failed(result)) return;
      const Encoding& codes = encodings->ofWeight(input.getTensor().str());
      if (codes.hasCodes()) result = quantize(codes, input, found->second);
    });
    return result;
  }

  bool isFrozenBf16(moe::InputOp input) {
    return !llvm::is_contained(keep, input.getTensor()) &&
           moeTensorType(input.getValue()).getElementType().isBF16();
  }

  // A single weight that has an encoding must be an input whose codes products may read.
  LogicalResult checkNames(moe::GraphOp graph, const Encodings& encodings,
                           const llvm::MapVector<llvm::StringRef, size_t>& weights) {
    for (const auto& [name, encoding] : encodings.single) {
      const auto error = [&, &name = name, &encoding = encoding] {
        return graph.emitError("encode: weights.") << name << "=" << encoding->name << ", but ";
      };
      if (!weights.contains(name))
        return error() << "graph '" << graph.getSymName() << "' has no weight of that name, expected one of "
                       << llvm::join(llvm::make_first_range(weights), ", ");
      if (encoding->hasCodes() && llvm::is_contained(keep, name))
        return error() << "that weight is trained, expected bf16";
    }
    return mlir::success();
  }

  LogicalResult quantize(const Encoding& codes, moe::InputOp input, size_t columnsFromEnd) {
    const moe::MoeTensorType type = moeTensorType(input.getValue());
    llvm::SmallVector<int64_t> shape(type.getShape());
    int64_t& sum = shape[shape.size() - (3 - columnsFromEnd)];
    int64_t& columns = shape[shape.size() - columnsFromEnd];
    const int64_t along = codes.along;
    if (isCodes(codes.element) && along > 0 && sum % along != 0)
      return input.emitError("'") << input.getTensor() << "' has sums of " << sum
                                  << ", expected a multiple of the group of " << along;
    sum = along > 0 ? scalesFor(sum, along) : 1;
    columns = scalesFor(columns, codes.across);
    const mlir::FailureOr<moe::MoeTensorType> ofCodes = typeOfCodes(input, type, codes.element);
    if (failed(ofCodes)) return mlir::failure();
    const auto sharding = findSharding(input, shape);
    mlir::FailureOr<moe::InputOp> scale = addInput(input, "_scale", input, codes.scale, shape, sharding);
    if (failed(scale)) return mlir::failure();
    moe::InputOp zero;
    if (codes.zeros) {
      mlir::FailureOr<moe::InputOp> made =
          addInput(input, "_zero", *scale, zeroType(codes.scale), shape, sharding);
      if (failed(made)) return mlir::failure();
      zero = *made;
    }
    moe::InputOp factor;
    if (codes.factor) {
      llvm::SmallVector<int64_t> matrices(type.getShape().drop_back(2));
      matrices.push_back(1);
      mlir::FailureOr<moe::InputOp> made = addInput(input, "_factor", *scale, DType::kF32, matrices, {});
      if (failed(made)) return mlir::failure();
      factor = *made;
    }
    input.getValue().setType(*ofCodes);
    for (mlir::Operation* user : input.getValue().getUsers()) {
      auto product = llvm::dyn_cast<moe::GmmOp>(user);
      if (!product || product.getWeight() != input.getValue() || product.getRows() == input.getValue())
        return user->emitError("node '")
               << llvm::cast<moe::NodeOp>(user).getNode() << "' reads '" << input.getTensor()
               << "', which has codes, but is no product with it as its weight";
      product.getWeightScaleMutable().assign((*scale).getValue());
      if (zero) product.getWeightZeroMutable().assign(zero.getValue());
      if (factor) product.getWeightFactorMutable().assign(factor.getValue());
    }
    return mlir::success();
  }

  // Codes of 4 bits lie in pairs along the last dimension.
  mlir::FailureOr<moe::MoeTensorType> typeOfCodes(moe::InputOp input, moe::MoeTensorType type,
                                                  DType element) {
    if (codesPerElement(element) == 1) return withElements(type, mlirElementType(&getContext(), element));
    llvm::SmallVector<int64_t> shape(type.getShape());
    if (shape.back() % 2 != 0) {
      input.emitError("'") << input.getTensor() << "' is " << moe::shapeText(type)
                           << ", expected an even last dimension, because two codes of 4 bits share a byte";
      return mlir::failure();
    }
    shape.back() /= 2;
    return moe::MoeTensorType::get(&getContext(), shape, mlirElementType(&getContext(), element));
  }

  // A tensor beside the codes of `input`, after `before`.
  mlir::FailureOr<moe::InputOp> addInput(moe::InputOp input, llvm::StringRef suffix, moe::InputOp before,
                                         DType type, llvm::ArrayRef<int64_t> shape,
                                         moe::ShardingAttr sharding) {
    mlir::OpBuilder builder(&getContext());
    builder.setInsertionPointAfter(before);
    const std::string name = (input.getTensor() + suffix).str();
    bool isTaken = false;
    input->getParentOp()->walk([&](mlir::Operation* op) {
      for (Value result : op->getResults()) isTaken |= moe::tensorName(result) == name;
    });
    if (isTaken || !moe::isValidName(name)) {
      input.emitError("the ") << suffix.drop_front() << " of '" << input.getTensor() << "' would be '" << name
                              << "', which is taken or no name";
      return mlir::failure();
    }
    return builder.create<moe::InputOp>(
        input.getLoc(), moe::MoeTensorType::get(&getContext(), shape, mlirElementType(&getContext(), type)),
        builder.getStringAttr(name), sharding);
  }

  // The part of a scale that a rank has: the same part as of the weight, or all of it if the scale has one
  // number along the dimension that ranks share.
  static moe::ShardingAttr findSharding(moe::InputOp input, llvm::ArrayRef<int64_t> scale) {
    const auto sharding = input.getSharding();
    if (!sharding) return {};
    const bool rows = *sharding == Sharding::kRows || *sharding == Sharding::kGateUpRows;
    return scale[scale.size() - (rows ? 2 : 1)] == 1 ? moe::ShardingAttr() : input.getShardingAttr();
  }
};

// --- Rows ----------------------------------------------------------------------------------------------

// The numbers along the sum of a product and across it, in its weight and in the scale of that.
struct Sides {
  int64_t weightAlong, weightAcross, scaleAlong, scaleAcross;
};

template <class Op>
Sides findSides(Op product) {
  const auto numbers = moe::numbersIn(moeTensorType(product.getWeight()));
  const auto weight = llvm::ArrayRef<int64_t>(numbers).take_back(2);
  const auto scale = moeTensorType(product.getWeightScale()).getShape().take_back(2);
  const size_t sum = product.getTranspose() ? 1 : 0;
  return {weight[sum], weight[1 - sum], scale[sum], scale[1 - sum]};
}

// Whether sums of products of codes are multiplied by the scale of the weight after they are complete.
template <class Op>
bool hasExactSums(Op product) {
  const Sides sides = findSides(product);
  if (sides.scaleAcross != sides.weightAcross ||
      !moeTensorType(product.getWeight()).getElementType().isInteger() ||
      !isNumber(*findDType(moeTensorType(product.getWeightScale()).getElementType())))
    return false;
  if (moe::codesIn(moeTensorType(product.getWeight()).getElementType()) == 1) return sides.scaleAlong == 1;
  return isGroup(sides.weightAlong / sides.scaleAlong, sides.weightAlong);
}

// It quantizes the rows of one entry.
class RowsQuantizer {
 public:
  // Rows are quantised if `rows`; rows of gradients, in an entry after another, if `gradients`.
  RowsQuantizer(moe::EntryOp entry, bool rows, bool gradients)
      : entry_(entry),
        builder_(entry),
        rows_(rows),
        gradients_(gradients && entry.getAfter()),
        names_(entry) {}

  LogicalResult run() {
    entry_.walk([&](moe::GmmOp product) { visit(product); });
    entry_.walk([&](moe::GmmActivationOp product) { visit(product); });
    if (gradients_) entry_.walk([&](moe::GmmActivationGradOp product) { visit(product); });
    for (auto quantize : llvm::to_vector(entry_.getOps<moe::QuantizeOp>())) quantizeBefore(quantize);
    return result_;
  }

 private:
  template <class Op>
  void visit(Op product) {
    if (!product.getWeightScale() || product.getRowScale() || failed(result_)) return;
    if (hasExactSums(product)) {
      if (rows_) multiplyCodes(product, Value());
      return;
    }
    if (!gradients_ || failed(result_ = checkGradient(product))) return;
    multiplyCodes(product, product.getWeightScale());
    product.getWeightScaleMutable().clear();
  }

  // A number of the gradient's row is multiplied by the scale of its column of the forward, which must have
  // one.
  template <class Op>
  static LogicalResult checkGradient(Op product) {
    const Sides sides = findSides(product);
    const auto error = [&](llvm::StringRef operand, Value value) {
      return moe::nodeError(product) << " has a gradient as rows, which would become codes, and " << operand
                                     << " '" << moe::valueName(value) << "' "
                                     << moe::shapeText(value.getType()) << " of weight '"
                                     << moe::valueName(product.getWeight()) << "' "
                                     << moe::shapeText(product.getWeight().getType());
    };
    if (product.getWeightZero())
      return error("zero", product.getWeightZero()) << ", expected none: grads=bf16";
    if (sides.scaleAlong == sides.weightAlong && sides.scaleAcross == 1) return mlir::success();
    return error("scale", product.getWeightScale())
           << ", expected one number for each of the " << sides.weightAlong
           << " numbers along the sum: codes without groups, or grads=bf16";
  }

  // `columnScale` may be null.
  template <class Op>
  void multiplyCodes(Op product, Value columnScale) {
    const auto [codes, scale] = quantizeRows(product.getRows(), columnScale);
    product.getRowsMutable().assign(codes);
    product.getRowScaleMutable().assign(scale);
  }

  // Rows that several products read are quantised once, for each scale of their columns.
  std::pair<Value, Value> quantizeRows(Value rows, Value columnScale) {
    if (const auto found = codes_.find({rows, columnScale}); found != codes_.end()) return found->second;
    const std::string name = moe::valueName(rows);
    const moe::MoeTensorType type = moeTensorType(rows);
    builder_.setInsertionPointAfterValue(rows);
    if (columnScale && rows.getDefiningOp()->isBeforeInBlock(columnScale.getDefiningOp()))
      builder_.setInsertionPointAfterValue(columnScale);
    const std::string node = names_.node(name + "_quantize");
    const std::string tensors[] = {names_.tensor(name + "_codes"), names_.tensor(name + "_row_scale")};
    auto made = builder_.create<moe::QuantizeOp>(
        rows.getLoc(), withElements(type, codesType(type.getContext())),
        moe::MoeTensorType::get(type.getContext(), type.getShape().take_front(1), builder_.getF32Type()),
        rows, columnScale, builder_.getStringAttr(node),
        builder_.getStrArrayAttr({llvm::StringRef(tensors[0]), llvm::StringRef(tensors[1])}),
        moe::SplitAttr());
    return codes_[{rows, columnScale}] = {made.getCodes(), made.getScale()};
  }

  // A row has the codes of its token, so rows that are only read as codes are sent as codes.
  void quantizeBefore(moe::QuantizeOp ofRows) {
    auto dispatch = ofRows.getValue().getDefiningOp<moe::DispatchOp>();
    if (!dispatch || dispatch.getWeights() || !dispatch.getRows().hasOneUse() || ofRows.getColumnScale())
      return;
    const auto [codes, scale] = quantizeRows(dispatch.getTokens(), Value());
    builder_.setInsertionPoint(dispatch);
    auto sent = builder_.create<moe::DispatchCodesOp>(
        dispatch.getLoc(), ofRows.getCodes().getType(), ofRows.getScale().getType(), codes, scale,
        dispatch.getRouting(), dispatch.getNodeAttr(), ofRows.getTensorsAttr(), dispatch.getSplitAttr());
    ofRows.replaceAllUsesWith(sent);
    ofRows.erase();
    dispatch.erase();
  }

  moe::EntryOp entry_;
  mlir::OpBuilder builder_;
  const bool rows_, gradients_;
  TakenNames names_;
  llvm::DenseMap<std::pair<Value, Value>, std::pair<Value, Value>> codes_;
  LogicalResult result_ = mlir::success();
};

struct QuantizeRows : impl::QuantizeRowsBase<QuantizeRows> {
  using QuantizeRowsBase::QuantizeRowsBase;

  void runOnOperation() override {
    for (auto graph : getOperation().getOps<moe::GraphOp>())
      if (failed(quantize(graph))) return signalPassFailure();
  }

  LogicalResult quantize(moe::GraphOp graph) {
    const auto isBackward = [](moe::EntryOp entry) { return entry.getAfter().has_value(); };
    if (gradients && llvm::none_of(graph.getOps<moe::EntryOp>(), isBackward))
      return graph.emitError("graph '") << graph.getSymName()
                                        << "' has no entry after another, expected one for grads=int8, "
                                           "as --trainable derives it";
    for (auto entry : graph.getOps<moe::EntryOp>())
      if (failed(RowsQuantizer(entry, rows, gradients).run())) return mlir::failure();
    return mlir::success();
  }
};

}  // namespace
}  // namespace sluice
