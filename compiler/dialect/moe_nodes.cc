// Verifiers of the nodes: names, splits, shapes and element types.
#include <map>
#include <string>

#include "compiler/dialect/element_type.h"
#include "compiler/dialect/moe.h"
#include "compiler/dialect/moe_factors.h"
#include "llvm/Support/raw_ostream.h"
#include "runtime/base/dtype.h"

namespace sluice::moe {

using llvm::ArrayRef;
using llvm::StringRef;
using mlir::failure;
using mlir::LogicalResult;
using mlir::success;

int64_t codesIn(mlir::Type element) { return codesPerElement(findDType(element).value_or(DType::kF32)); }

llvm::SmallVector<int64_t> numbersIn(MoeTensorType type) {
  llvm::SmallVector<int64_t> shape(type.getShape());
  if (!shape.empty()) shape.back() *= codesIn(type.getElementType());
  return shape;
}

namespace {

// Checks the tensors of one node against patterns such as {"E", "C", "N"}. "T" and "R" are extents, and so is
// "E" (experts of the rank) if ranks own different numbers of them; "1" is 1; any other letter is a number,
// bound at its first use; "2I" is twice the number "I", and "H/32" one for each kMxBlock of "H". Dimensions
// are numbers, of which an element may have two. The graph binds E, as a number, and K (top_k). The first
// mismatch is reported; all later checks fail silently.
constexpr StringRef kPerBlock = "/32";
static_assert(kMxBlock == 32);
class ShapeChecker {
 public:
  explicit ShapeChecker(NodeOp node) : node_(node) {
    auto graph = node->getParentOfType<GraphOp>();
    if (!graph) return;
    if (graph.expertsDiffer())
      differ_ = std::to_string(graph.getExperts()) + " of " + std::to_string(graph.getMesh().ep) +
                (graph.getMesh().tp == 1 ? " ranks" : " groups");
    else
      bound_["E"] = {graph.getExpertsOfRank(),
                     graph.getMesh().tp == 1 ? "experts / ranks" : "experts / groups"};
    bound_["K"] = {static_cast<int64_t>(graph.getTopK()), "top_k"};
    bound_["places"] = {static_cast<int64_t>(graph.getExperts()), "experts + spare"};
  }

  ShapeChecker& check(StringRef what, mlir::Value value, ArrayRef<StringRef> pattern,
                      ArrayRef<mlir::Type> elements) {
    if (!ok_) return *this;
    const auto type = mlir::cast<MoeTensorType>(value.getType());
    const Bindings before = bound_;
    ok_ = llvm::is_contained(elements, type.getElementType()) && type.getShape().size() == pattern.size();
    const llvm::SmallVector<int64_t> shape = numbersIn(type);
    for (size_t i = 0; ok_ && i < pattern.size(); ++i) ok_ = bind(pattern[i], shape[i], what);
    if (!ok_) report(what, type, pattern, elements, before);
    return *this;
  }

  LogicalResult result() const { return mlir::success(ok_); }

 private:
  struct Binding {
    int64_t value;
    std::string from;
  };
  using Bindings = std::map<std::string, Binding>;

  bool bind(StringRef name, int64_t dim, StringRef what) {
    if (name == "T") return dim == MoeTensorType::kTokens;
    if (name == "R") return dim == MoeTensorType::kRows;
    if (name == "1") return dim == 1;
    if (name == "E" && !differ_.empty()) return dim == MoeTensorType::kExperts;
    if (dim < 0) return false;
    const int64_t factor = name.consume_front("2") ? 2 : 1;
    if (dim % factor != 0) return false;
    if (name.consume_back(kPerBlock)) dim *= kMxBlock;
    const auto [it, isNew] = bound_.try_emplace(name.str(), Binding{dim / factor, what.str()});
    return isNew || it->second.value * factor == dim;
  }

  void report(StringRef what, MoeTensorType type, ArrayRef<StringRef> pattern, ArrayRef<mlir::Type> elements,
              const Bindings& before) {
    std::string expected = "[", where;
    llvm::raw_string_ostream os(expected);
    for (StringRef name : pattern) {
      os << name << " x ";
      name.consume_front("2");
      name.consume_back(kPerBlock);
      if (name == "E" && !differ_.empty()) where = " with E the experts of each rank (" + differ_ + ")";
      const auto it = before.find(name.str());
      if (it == before.end()) continue;
      where += (where.empty() ? " with " : ", ") + it->first + " = " + std::to_string(it->second.value) +
               " (" + it->second.from + ")";
    }
    llvm::interleave(elements, os, " or ");
    os << "]";
    const auto kind = node_->getAttrOfType<ActivationKindAttr>("kind");
    if (kind && !findInfo(kind.getValue()).isGated())
      where += ", where kind '" + text::word(kind.getValue()) + "' has no gate";
    nodeError(node_) << ": " << what << " is " << shapeText(type) << ", expected " << expected << where;
  }

  NodeOp node_;
  Bindings bound_;
  std::string differ_;  // why E is an extent; empty: it is a number
  bool ok_ = true;
};

mlir::Type bf16(mlir::Operation* op) { return mlir::BFloat16Type::get(op->getContext()); }
mlir::Type f32(mlir::Operation* op) { return mlir::Float32Type::get(op->getContext()); }
mlir::Type i32(mlir::Operation* op) { return mlir::IntegerType::get(op->getContext(), 32); }
mlir::Type i8(mlir::Operation* op) { return mlir::IntegerType::get(op->getContext(), 8); }
mlir::Type e4m3(mlir::Operation* op) { return mlir::Float8E4M3FNType::get(op->getContext()); }

// An optional result and its optional operand must both be present or both be absent.
LogicalResult checkTogether(NodeOp node, StringRef operand, mlir::Value given, StringRef result,
                            mlir::Value asked) {
  if (static_cast<bool>(given) == static_cast<bool>(asked)) return success();
  return nodeError(node) << " has " << (given ? operand : result) << " but no " << (given ? result : operand)
                         << ", expected both or neither";
}

// Only kinds that clamp have a limit; kernels get it as bf16.
LogicalResult checkLimit(NodeOp node, ActivationKind kind, std::optional<llvm::APFloat> limit) {
  const bool clamps = findInfo(kind).hasLimit;
  if (!clamps && !limit) return success();
  if (clamps != limit.has_value())
    return nodeError(node) << " of kind '" << text::word(kind) << "' has " << (limit ? "a" : "no")
                           << " limit, expected " << (clamps ? "one" : "none");
  const float value = limit->convertToFloat();
  if (value > 0 && limit->isFinite() && toFloat(toBFloat16(value)) == value) return success();
  return nodeError(node) << " has limit " << value << ", expected a positive number that bf16 holds";
}

// In a program a factor of 0 means that there is none.
LogicalResult checkAlpha(NodeOp node, const std::optional<llvm::APFloat>& alpha) {
  if (!alpha || (alpha->isFinite() && !alpha->isZero())) return success();
  return nodeError(node) << " has alpha " << alpha->convertToFloat()
                         << ", expected a finite number other than 0";
}

// "T" if the node works on tokens, "R" if it works on rows or, wrongly, on neither.
StringRef findExtent(mlir::Value value) {
  return mlir::cast<MoeTensorType>(value.getType()).hasTokens() ? "T" : "R";
}

// The scales of codes of tokens or rows [extent, columns]: one per row of i8, one for each kMxBlock numbers
// of a row of 8-bit floats.
void checkRowScale(ShapeChecker& checker, NodeOp node, StringRef what, mlir::Value codes, mlir::Value scale,
                   StringRef columns) {
  const StringRef extent = findExtent(codes);
  const std::string blocks = (columns + kPerBlock).str();
  if (scalarType(codes).isFloat8E4M3FN())
    checker.check(what, scale, {extent, blocks}, bf16(node));
  else
    checker.check(what, scale, {extent}, f32(node));
}

// The dimensions of an operand as patterns, from its letters in the op table.
class TensorChecker {
 public:
  explicit TensorChecker(NodeOp node)
      : node_(node),
        op_(sluice::findInfo(*findOpKind(node))),
        checker_(node),
        extent_(findExtent(node->getOperand(0))),
        reads_(collectReads(node)) {}

  LogicalResult run() {
    for (const auto& [operand, value] : llvm::zip(op_.reads, reads_)) check(operand, value);
    for (const auto& [operand, value] : llvm::zip(op_.writes, collectWrites(node_))) check(operand, value);
    return checker_.result();
  }

 private:
  void check(const OperandInfo& operand, mlir::Value value) {
    if (!value || operand.shape.empty()) return;  // blocks of a weight: checkFactorForms()
    llvm::SmallVector<std::string> pattern;
    for (const char letter : operand.shape)
      if (letter != 'E' || extent_ == "R") pattern.push_back(dimension(letter));
    const bool isTransposed = operand.isWeight && node_->hasAttr("transpose");
    const auto type = mlir::cast<MoeTensorType>(value.getType());
    if (isTransposed || (operand.mayTurn && !type.getShape().empty() && type.getShape().back() == 1))
      std::swap(pattern.back(), pattern.end()[-2]);
    llvm::SmallVector<mlir::Type> types = allowedTypes(operand, value);
    if (operand.scalesRows()) {
      const bool inBlocks = hasFloatCodes(read(operand.scales));
      types = {inBlocks ? bf16(node_) : f32(node_)};
      if (inBlocks) pattern.push_back(dimension(op_.find(operand.scales)->shape.back()) + kPerBlock.str());
    }
    const llvm::SmallVector<StringRef> words(pattern.begin(), pattern.end());
    checker_.check((isTransposed ? "transposed " : "") + std::string(operand.name), value, words, types);
  }

  mlir::Value read(OperandName name) const {
    const auto operand = llvm::find_if(op_.reads, [&](const OperandInfo& each) { return each.id == name; });
    return reads_[static_cast<size_t>(operand - op_.reads.begin())];
  }

  // The element types that are allowed. Operands that must share a type all have the type of the first of
  // them.
  llvm::SmallVector<mlir::Type> allowedTypes(const OperandInfo& operand, mlir::Value value) {
    const bool sharesType = operand.types.size() > 1 && !operand.isFactor && operand.scales == nullptr;
    if (sharesType && shared_) return {shared_};
    if (sharesType) shared_ = scalarType(value);
    llvm::SmallVector<mlir::Type> types;
    for (const DType type : operand.types) types.push_back(mlirElementType(node_->getContext(), type));
    return types;
  }

  std::string dimension(char letter) {
    const auto kind = node_->getAttrOfType<ActivationKindAttr>("kind");
    const std::string columns = kind ? "I" : "N";
    switch (letter) {
      case 'X':
        return extent_.str();
      case 'm':
        return "M";
      case 'k':
        return "C";
      case 'i':
        return (findInfo(kind.getValue()).isGated() ? "2" : "") + columns;
      case 'c':
      case 's': {  // columns of the factor that has codes
        const std::string coded = op_.isSum() && hasFloatCodes(read(&Operands::a)) ? "M" : columns;
        return letter == 'c' ? coded : coded + kPerBlock.str();
      }
      case 'n':
        return columns;
      default:
        return std::string(1, letter);
    }
  }

  NodeOp node_;
  const OpInfo& op_;
  ShapeChecker checker_;
  const StringRef extent_;
  const llvm::SmallVector<mlir::Value> reads_;
  mlir::Type shared_;
};

// What a gradient of an activation gives besides the first result.
template <class Op>
LogicalResult checkMore(Op op) {
  const size_t least = op.getGivesAct() ? 1 : 0, more = op.getMore().size();
  if (more == least || more == least + 1) return success();
  return nodeError(op) << " has " << more + 1 << " results, expected " << least + 1 << " or " << least + 2
                       << (op.getGivesAct() ? " with gives_act" : "");
}

// Without ids every token goes to every expert.
LogicalResult checkEveryExpert(RouteOp route) {
  auto graph = route->getParentOfType<GraphOp>();
  if (!graph || graph.getTopK() == graph.getExperts()) return success();
  return nodeError(route) << " has no ids, so that every token goes to every expert, "
                          << "but top_k is " << graph.getTopK() << " of " << graph.getExperts() << " experts";
}

// Ids name experts, and only a placement says which of them have the graph's spare places.
LogicalResult checkPlacement(RouteOp route) {
  auto graph = route->getParentOfType<GraphOp>();
  if (!graph || graph.getSpare().value_or(0) == 0 || route.getPlacement()) return success();
  return nodeError(route) << " has no placement, but the graph has " << *graph.getSpare() << " spare places";
}

// Whether a node can be cut by a space: one of its tensors must have it.
bool mayCut(mlir::Operation* op, SplitSpace space) {
  if (mlir::isa<RouteOp>(op)) return false;
  const bool isOfTokens = !isDispatch(op) && findExtent(op->getOperand(0)) == "T";
  switch (space) {
    case SplitSpace::tokens:
      return isOfTokens || mlir::isa<CombineOp>(op);
    case SplitSpace::experts:
      return isSum(op) && !isOfTokens;
    case SplitSpace::rows:
      return !isOfTokens;
  }
  return false;
}

}  // namespace

LogicalResult checkTensors(NodeOp node) { return TensorChecker(node).run(); }

LogicalResult verifyNode(mlir::Operation* op) {
  auto node = mlir::cast<NodeOp>(op);
  if (const auto split = node.getSplitAttr(); split && !mayCut(op, split.getSpace()))
    return nodeError(node) << " cannot be cut by '" << stringifySplitSpace(split.getSpace()) << "'";
  const mlir::ArrayAttr tensors = node.getTensorsAttr();
  if (!tensors) return success();
  if (tensors.size() != op->getNumResults())
    return nodeError(node) << " names " << tensors.size() << " tensors, but has " << op->getNumResults()
                           << " results";
  for (StringRef name : tensors.getAsValueRange<mlir::StringAttr>())
    if (!isValidName(name)) return nodeError(node) << " has a bad tensor name '" << name << "'";
  return success();
}

// --- Nodes ---------------------------------------------------------------------------------------------

LogicalResult RouteOp::verify() {
  if (failed(checkPlacement(*this))) return failure();
  if (!getIds()) return checkEveryExpert(*this);
  for (mlir::Value operand : getOperands())
    if (!mlir::isa_and_present<InputOp>(operand.getDefiningOp()))
      return nodeError(*this) << ": " << (operand == getIds() ? "ids are" : "placement is")
                              << " not an input of the entry";
  ShapeChecker checker(*this);
  checker.check("ids", getIds(), {"T", "K"}, i32(*this));
  if (getPlacement()) checker.check("placement", getPlacement(), {"places"}, i32(*this));
  return checker.result();
}

LogicalResult DispatchOp::verify() {
  if (failed(checkTogether(*this, "weights", getWeights(), "row weights", getRowWeights()))) return failure();
  ShapeChecker checker(*this);
  checker.check("tokens", getTokens(), {"T", "H"}, {bf16(*this), f32(*this)});
  checker.check("rows", getRows(), {"R", "H"}, scalarType(getTokens()));
  if (getWeights()) checker.check("weights", getWeights(), {"T", "K"}, f32(*this));
  if (getRowWeights()) checker.check("row weights", getRowWeights(), {"R"}, f32(*this));
  return checker.result();
}

LogicalResult DispatchCodesOp::verify() {
  ShapeChecker checker(*this);
  checker.check("codes", getCodes(), {"T", "H"}, {i8(*this), e4m3(*this)});
  checker.check("rows", getRows(), {"R", "H"}, scalarType(getCodes()));
  checkRowScale(checker, *this, "scales", getCodes(), getScales(), "H");
  checkRowScale(checker, *this, "row scales", getRows(), getRowScales(), "H");
  return checker.result();
}

LogicalResult GmmOp::verify() {
  if (failed(checkAlpha(*this, getAlpha())) || failed(checkTensors(*this))) return failure();
  return checkFactorForms(*this);
}

LogicalResult GmmWeightGradOp::verify() {
  if (failed(checkAlpha(*this, getAlpha())) || failed(checkTensors(*this))) return failure();
  return checkSumRoundings(*this);
}

LogicalResult EncodeOp::verify() {
  if (!isEncodable(getRoundA()))
    return nodeError(*this) << " encodes with rounding " << text::word(getRoundA())
                            << ", expected E4M3, not in squares";
  const bool byAmax = sluice::findInfo(getRoundA()).isScaled;
  if (byAmax != static_cast<bool>(getAmax()))
    return nodeError(*this) << " has " << (byAmax ? "no" : "an") << " amax, but encodes with rounding "
                            << text::word(getRoundA());
  if (byAmax ? getNumResults() != 1 : getNumResults() < 2 || getNumResults() > 3)
    return nodeError(*this) << " has " << getNumResults() << " results, expected "
                            << (byAmax ? "1" : "2 or 3") << " with rounding " << text::word(getRoundA());
  return failed(checkTensors(*this)) ? failure() : checkScaled(*this, "value", getValue(), getValueScale());
}

LogicalResult ActivationOp::verify() {
  return failed(checkLimit(*this, getKind(), getLimit())) ? failure() : checkTensors(*this);
}

LogicalResult ActivationGradOp::verify() {
  if (failed(checkLimit(*this, getKind(), getLimit())) || failed(checkMore(*this))) return failure();
  return checkTensors(*this);
}

LogicalResult CombineOp::verify() {
  if (failed(checkTogether(*this, "scalars", getScalars(), "token scalars", getTokenScalars())))
    return failure();
  ShapeChecker checker(*this);
  const mlir::Type element = scalarType(getRows());
  checker.check("rows", getRows(), {"R", "H"}, {bf16(*this), f32(*this)});
  if (getWeights()) checker.check("weights", getWeights(), {"T", "K"}, f32(*this));
  if (getScalars()) checker.check("scalars", getScalars(), {"R"}, f32(*this));
  if (getBias()) checker.check("bias", getBias(), {"H"}, element);
  checker.check("sum", getSum(), {"T", "H"}, element);
  if (getTokenScalars()) checker.check("token scalars", getTokenScalars(), {"T", "K"}, f32(*this));
  return checker.result();
}

LogicalResult ScaleOp::verify() {
  return failed(checkAlpha(*this, getAlpha())) ? failure() : checkTensors(*this);
}

LogicalResult GmmActivationOp::verify() {
  if (failed(checkAlpha(*this, getAlpha())) || failed(checkLimit(*this, getKind(), getLimit())) ||
      failed(checkTensors(*this)))
    return failure();
  return checkFactorForms(*this);
}

LogicalResult GmmActivationGradOp::verify() {
  if (failed(checkAlpha(*this, getAlpha())) || failed(checkLimit(*this, getKind(), getLimit())) ||
      failed(checkMore(*this)) || failed(checkTensors(*this)))
    return failure();
  return checkFactorForms(*this);
}

}  // namespace sluice::moe
