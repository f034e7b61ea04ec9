// Verifiers of the nodes: names, splits, shapes and element types.
#include <map>
#include <string>

#include "compiler/dialect/moe.h"
#include "llvm/Support/raw_ostream.h"
#include "runtime/base/dtype.h"

namespace sluice::moe {

using llvm::ArrayRef;
using llvm::StringRef;
using mlir::failure;
using mlir::LogicalResult;
using mlir::success;

namespace {

// Checks the tensors of one node against patterns such as {"E", "C", "N"}. "T" and "R" are the extents; any
// other letter is a number, bound where it is first met; "2I" is twice the number "I". E (experts a rank) and
// K (top_k) are bound by the graph. The first mismatch is reported; all later checks fail silently.
class ShapeChecker {
 public:
  explicit ShapeChecker(NodeOp node) : node_(node) {
    auto graph = node->getParentOfType<GraphOp>();
    if (!graph) return;
    bound_["E"] = {graph.getExpertsPerRank(), "experts / ranks"};
    bound_["K"] = {static_cast<int64_t>(graph.getTopK()), "top_k"};
  }

  ShapeChecker& check(StringRef what, mlir::Value value, ArrayRef<StringRef> pattern, mlir::Type element) {
    if (!ok_) return *this;
    const auto type = mlir::cast<MoeTensorType>(value.getType());
    const Bindings before = bound_;
    ok_ = type.getElementType() == element && type.getShape().size() == pattern.size();
    for (size_t i = 0; ok_ && i < pattern.size(); ++i) ok_ = bind(pattern[i], type.getShape()[i], what);
    if (!ok_) report(what, type, pattern, element, before);
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
    if (dim < 0) return false;
    const int64_t factor = name.consume_front("2") ? 2 : 1;
    if (dim % factor != 0) return false;
    const auto [it, isNew] = bound_.try_emplace(name.str(), Binding{dim / factor, what.str()});
    return isNew || it->second.value * factor == dim;
  }

  void report(StringRef what, MoeTensorType type, ArrayRef<StringRef> pattern, mlir::Type element,
              const Bindings& before) {
    std::string expected = "[", where;
    llvm::raw_string_ostream os(expected);
    for (StringRef name : pattern) {
      os << name << " x ";
      name.consume_front("2");
      const auto it = before.find(name.str());
      if (it == before.end()) continue;
      where += (where.empty() ? " with " : ", ") + it->first + " = " + std::to_string(it->second.value) +
               " (" + it->second.from + ")";
    }
    os << element << "]";
    node_->emitError("node '") << node_.getNode() << "': " << what << " is " << shapeText(type)
                               << ", expected " << expected << where;
  }

  NodeOp node_;
  Bindings bound_;
  bool ok_ = true;
};

mlir::Type bf16(mlir::Operation* op) { return mlir::BFloat16Type::get(op->getContext()); }
mlir::Type f32(mlir::Operation* op) { return mlir::Float32Type::get(op->getContext()); }
mlir::Type i32(mlir::Operation* op) { return mlir::IntegerType::get(op->getContext(), 32); }

// An optional result goes with an optional operand.
LogicalResult checkTogether(NodeOp node, StringRef operand, mlir::Value given, StringRef result,
                            mlir::Value asked) {
  if (static_cast<bool>(given) == static_cast<bool>(asked)) return success();
  return node->emitError("node '") << node.getNode() << "' has " << (given ? operand : result) << " but no "
                                   << (given ? result : operand) << ", expected both or neither";
}

// The limit belongs to swiglu_clamp; kernels get it as bf16.
LogicalResult checkLimit(NodeOp node, ActivationKind kind, std::optional<llvm::APFloat> limit) {
  const bool clamps = kind == ActivationKind::swiglu_clamp;
  if (!clamps && !limit) return success();
  if (clamps != limit.has_value()) {
    return node->emitError("node '") << node.getNode() << "' of kind '" << stringifyActivationKind(kind)
                                     << "' has " << (limit ? "a" : "no") << " limit, expected "
                                     << (clamps ? "one" : "none");
  }
  const float value = limit->convertToFloat();
  if (value > 0 && limit->isFinite() && toFloat(toBFloat16(value)) == value) return success();
  return node->emitError("node '") << node.getNode() << "' has limit " << value
                                   << ", expected a positive number that bf16 holds";
}

// The spaces a node can be cut in: those its tensors have.
bool mayCut(mlir::Operation* op, SplitSpace space) {
  if (mlir::isa<RouteOp>(op)) return false;
  switch (space) {
    case SplitSpace::tokens:
      return mlir::isa<CombineOp>(op);
    case SplitSpace::experts:
      return mlir::isa<GmmWeightGradOp>(op);
    case SplitSpace::rows:
      return true;
  }
  return false;
}

}  // namespace

LogicalResult verifyNode(mlir::Operation* op) {
  auto node = mlir::cast<NodeOp>(op);
  if (const auto split = node.getSplitAttr(); split && !mayCut(op, split.getSpace())) {
    return op->emitError("node '") << node.getNode() << "' cannot be cut by '"
                                   << stringifySplitSpace(split.getSpace()) << "'";
  }
  const mlir::ArrayAttr tensors = node.getTensorsAttr();
  if (!tensors) return success();
  if (tensors.size() != op->getNumResults()) {
    return op->emitError("node '") << node.getNode() << "' names " << tensors.size() << " tensors, but has "
                                   << op->getNumResults() << " results";
  }
  for (StringRef name : tensors.getAsValueRange<mlir::StringAttr>()) {
    if (!isValidName(name)) {
      return op->emitError("node '") << node.getNode() << "' has a bad tensor name '" << name << "'";
    }
  }
  return success();
}

// --- Nodes ---------------------------------------------------------------------------------------------

LogicalResult RouteOp::verify() {
  if (!mlir::isa_and_present<InputOp>(getIds().getDefiningOp())) {
    return emitError("node '") << getNode() << "': ids are not an input of the entry";
  }
  return ShapeChecker(*this).check("ids", getIds(), {"T", "K"}, i32(*this)).result();
}

LogicalResult DispatchOp::verify() {
  if (failed(checkTogether(*this, "weights", getWeights(), "row weights", getRowWeights()))) return failure();
  ShapeChecker checker(*this);
  checker.check("tokens", getTokens(), {"T", "H"}, bf16(*this));
  checker.check("rows", getRows(), {"R", "H"}, bf16(*this));
  if (getWeights()) checker.check("weights", getWeights(), {"T", "K"}, f32(*this));
  if (getRowWeights()) checker.check("row weights", getRowWeights(), {"R"}, f32(*this));
  return checker.result();
}

LogicalResult GmmOp::verify() {
  ShapeChecker checker(*this);
  checker.check("rows", getRows(), {"R", "C"}, bf16(*this));
  if (getTranspose()) {
    checker.check("transposed weight", getWeight(), {"E", "N", "C"}, bf16(*this));
  } else {
    checker.check("weight", getWeight(), {"E", "C", "N"}, bf16(*this));
  }
  return checker.check("product", getProduct(), {"R", "N"}, bf16(*this)).result();
}

LogicalResult GmmWeightGradOp::verify() {
  ShapeChecker checker(*this);
  checker.check("a", getA(), {"R", "M"}, bf16(*this)).check("b", getB(), {"R", "N"}, bf16(*this));
  if (getRowScale()) checker.check("row scale", getRowScale(), {"R"}, f32(*this));
  return checker.check("grad", getGrad(), {"E", "M", "N"}, f32(*this)).result();
}

LogicalResult ActivationOp::verify() {
  if (failed(checkLimit(*this, getKind(), getLimit()))) return failure();
  ShapeChecker checker(*this);
  checker.check("gate_up", getGateUp(), {"R", "2I"}, bf16(*this));
  return checker.check("act", getAct(), {"R", "I"}, bf16(*this)).result();
}

LogicalResult ActivationGradOp::verify() {
  if (failed(checkLimit(*this, getKind(), getLimit()))) return failure();
  ShapeChecker checker(*this);
  checker.check("act_grad", getActGrad(), {"R", "I"}, bf16(*this));
  checker.check("gate_up", getGateUp(), {"R", "2I"}, bf16(*this));
  if (getRowWeights()) checker.check("row weights", getRowWeights(), {"R"}, f32(*this));
  checker.check("gate_up_grad", getGateUpGrad(), {"R", "2I"}, bf16(*this));
  if (getRowWeightGrad()) checker.check("row weight grad", getRowWeightGrad(), {"R"}, f32(*this));
  return checker.result();
}

LogicalResult CombineOp::verify() {
  if (failed(checkTogether(*this, "scalars", getScalars(), "token scalars", getTokenScalars()))) {
    return failure();
  }
  ShapeChecker checker(*this);
  checker.check("rows", getRows(), {"R", "H"}, bf16(*this));
  if (getWeights()) checker.check("weights", getWeights(), {"T", "K"}, f32(*this));
  if (getScalars()) checker.check("scalars", getScalars(), {"R"}, f32(*this));
  checker.check("sum", getSum(), {"T", "H"}, bf16(*this));
  if (getTokenScalars()) checker.check("token scalars", getTokenScalars(), {"T", "K"}, f32(*this));
  return checker.result();
}

}  // namespace sluice::moe
