// The contribution of each node to a backward entry.
#include "compiler/dialect/moe_gradient.h"

namespace sluice::moe {

using llvm::StringRef;
using mlir::failure;
using mlir::LogicalResult;
using mlir::success;
using mlir::Value;

namespace {

mlir::Type vectorOfRows(mlir::OpBuilder& builder) {
  return MoeTensorType::get(builder.getContext(), {MoeTensorType::kRows}, builder.getF32Type());
}

// Copies an attribute of the forward node to its gradient, if it exists.
void addAlpha(llvm::SmallVector<mlir::NamedAttribute>& attributes, mlir::OpBuilder& builder,
              mlir::FloatAttr alpha) {
  if (alpha) attributes.push_back(builder.getNamedAttr("alpha", alpha));
}

// How a product of the derivative rounds its factors.
void addRoundings(llvm::SmallVector<mlir::NamedAttribute>& attributes, mlir::OpBuilder& builder,
                  RoundingAttr a, RoundingAttr b) {
  if (a) attributes.push_back(builder.getNamedAttr("round_a", a));
  if (b) attributes.push_back(builder.getNamedAttr("round_b", b));
}

// The attributes that select an activation's function: all that are not common to all nodes.
llvm::SmallVector<mlir::NamedAttribute> functionAttributes(ActivationOp op) {
  const llvm::StringSet<> common = {"node", "tensors", "split"};
  llvm::SmallVector<mlir::NamedAttribute> attributes;
  for (mlir::NamedAttribute attribute : op->getAttrDictionary())
    if (!common.contains(attribute.getName())) attributes.push_back(attribute);
  return attributes;
}

// Returns whether a value has tokens, or rows that no node of the entry makes: their gradients are named
// alike.
bool isOfCaller(Value value) {
  return mlir::cast<MoeTensorType>(value.getType()).hasTokens() || mlir::isa<InputOp>(value.getDefiningOp());
}

// The gradient of a weight has its shape, in f32.
mlir::Type gradientType(mlir::OpBuilder& builder, Value weight) {
  const auto type = mlir::cast<MoeTensorType>(weight.getType());
  return MoeTensorType::get(builder.getContext(), type.getShape(), builder.getF32Type());
}

// The sum of the gradients of all rows or tokens to which the bias was added.
LogicalResult addBiasGradient(GradientBuilder& gradients, NodeOp node, Value bias, Value gradient,
                              Value scale) {
  const std::string name = gradientName(bias);
  mlir::Operation* op = gradients.create(node, "column_sum", name, {gradient, scale},
                                         {{name, gradientType(gradients.builder(), bias)}});
  return gradients.add(node, bias, {.value = op->getResult(0)});
}

}  // namespace

// Returns rows that came from tokens to these tokens.
LogicalResult DispatchOp::buildGradients(GradientBuilder& gradients) {
  const Gradient* rows = gradients.find(getRows());
  if (rows == nullptr || gradients.find(getRowWeights()) != nullptr)
    return nodeError(*this) << " gives row weights that need a gradient, expected rows only";
  if (rows->wantsDot)
    return nodeError(*this) << " gives rows that are weighted without an activation between, "
                            << "so there is no op for the gradient of the weights '"
                            << valueName(rows->weights) << "'";
  if (!gradients.needs(getTokens())) return success();
  const Gradient from = *rows;
  const mlir::FailureOr<Value> sum = gradients.combine(*this, getRouting(), from.value, from.weights,
                                                       {gradientName(getTokens()), getTokens().getType()});
  if (failed(sum)) return failure();
  return gradients.add(*this, getTokens(), {.value = *sum});
}

// The product's gradient times the transposed weight and, per expert, the outer product of both. Rows of
// codes are made only after derivation.
LogicalResult GmmOp::buildGradients(GradientBuilder& gradients) {
  const Gradient from = *gradients.find(getProduct());
  mlir::OpBuilder& builder = gradients.builder();
  if (gradients.needs(getRows()) || from.wantsDot) {
    // The reference names the gradient of dispatched rows after the product that they go through.
    auto dispatch = getRows().getDefiningOp<DispatchOp>();
    const std::string node = dispatch ? "gate_grad" : valueName(getRows()) + "_grad";
    const std::string tensor = dispatch                ? "rows_" + gradientName(dispatch.getTokens())
                               : isOfCaller(getRows()) ? gradientName(getRows())
                                                       : node + "_y";
    llvm::SmallVector<mlir::NamedAttribute> attributes;
    addAlpha(attributes, builder, getAlphaAttr());
    if (!getTranspose()) attributes.push_back(builder.getNamedAttr("transpose", builder.getUnitAttr()));
    addRoundings(attributes, builder, getRoundGradsAttr(), getRoundBAttr());
    const auto keptIf = [&](Value value) { return value ? gradients.kept(value) : Value(); };
    mlir::Operation* op = gradients.create(*this, "gmm", node,
                                           {from.value,
                                            gradients.kept(getWeight()),
                                            {},
                                            {},
                                            keptIf(getWeightScale()),
                                            keptIf(getWeightZero()),
                                            {},
                                            {},
                                            keptIf(getWeightFactor())},
                                           {{tensor, getRows().getType()}}, attributes);
    Gradient rows = from;
    rows.value = op->getResult(0);
    if (failed(gradients.add(*this, getRows(), rows))) return failure();
  }
  if (getBias() && from.wantsDot) gradients.addDot(*this, from.value, getBias(), from.weights);
  if (getBias() && gradients.needs(getBias()) &&
      failed(addBiasGradient(gradients, *this, getBias(), from.value, from.scale)))
    return failure();
  if (!gradients.needs(getWeight())) return success();
  Value a = gradients.kept(getRows()), b = from.value;
  RoundingAttr roundA = getRoundAAttr(), roundB = getRoundGradsAttr();
  if (getTranspose()) {
    std::swap(a, b);
    std::swap(roundA, roundB);
  }
  const std::string name = gradientName(getWeight());
  llvm::SmallVector<mlir::NamedAttribute> attributes;
  addAlpha(attributes, builder, getAlphaAttr());
  addRoundings(attributes, builder, roundA, roundB);
  if (from.scale && roundA && getTranspose())  // the gradient has the scale, so that rows do not depend on it
    attributes.push_back(builder.getNamedAttr("scale_a", builder.getUnitAttr()));
  mlir::Operation* op = gradients.create(*this, "gmm_weight_grad", name, {a, b, from.scale, {}, {}, {}, {}},
                                         {{name, gradientType(builder, getWeight())}}, attributes);
  return gradients.add(*this, getWeight(), {.value = op->getResult(0)});
}

bool ActivationOp::isRecomputable() { return true; }

// Applies the routing weight, and computes its gradient.
LogicalResult ActivationOp::buildGradients(GradientBuilder& gradients) {
  const Gradient from = *gradients.find(getAct());
  llvm::SmallVector<NewTensor> results = {{valueName(getGateUp()) + "_grad", getGateUp().getType()}};
  if (from.wantsDot) results.push_back({"row_weight_grad", vectorOfRows(gradients.builder())});
  mlir::Operation* op = gradients.create(*this, "activation_grad", getNode().str() + "_grad",
                                         {from.value, gradients.kept(getGateUp()), from.scale}, results,
                                         functionAttributes(*this));
  if (from.wantsDot && failed(gradients.carry(*this, from.value, op->getResult(1), from.weights)))
    return failure();
  if (!gradients.needs(getGateUp())) return success();
  return gradients.add(*this, getGateUp(), {.value = op->getResult(0)});
}

// Dispatches rows that went back to tokens to the experts again, with the weights that they were summed with.
LogicalResult CombineOp::buildGradients(GradientBuilder& gradients) {
  if (getTokenScalars() && gradients.find(getTokenScalars()) != nullptr)
    return nodeError(*this) << " gives scalars that need a gradient, expected rows only";
  const bool wantsDot = getWeights() && gradients.needs(getWeights());
  const Gradient from = *gradients.find(getSum());
  if (getBias() && gradients.needs(getBias()) &&
      failed(addBiasGradient(gradients, *this, getBias(), from.value, {})))
    return failure();
  if (!gradients.needs(getRows()) && !wantsDot) return success();
  llvm::SmallVector<NewTensor> results = {{"rows_" + valueName(from.value), getRows().getType()}};
  if (getWeights()) results.push_back({"row_weights", vectorOfRows(gradients.builder())});
  const Value weights = getWeights() ? gradients.kept(getWeights()) : Value();
  mlir::Operation* op = gradients.create(*this, "dispatch", "dispatch",
                                         {from.value, gradients.kept(getRouting()), weights}, results);
  Gradient rows{.value = op->getResult(0)};
  if (getWeights()) rows = {op->getResult(0), op->getResult(1), getWeights(), wantsDot};
  return gradients.add(*this, getRows(), rows);
}

// Both summands get the sum's gradient, with its weight: a row's dot product with the sum covers both.
LogicalResult AddOp::buildGradients(GradientBuilder& gradients) {
  const Gradient from = *gradients.find(getSum());
  for (Value operand : getOperands()) {
    if (!gradients.needs(operand) && !from.wantsDot) continue;
    if (failed(gradients.add(*this, operand, from))) return failure();
  }
  return success();
}

LogicalResult ScaleOp::buildGradients(GradientBuilder& gradients) {
  if (getRowWeights()) return nodeError(*this) << " has weights of rows, for which there is no derivative";
  Gradient value = *gradients.find(getScaled());
  if (!gradients.needs(getValue()) && !value.wantsDot) return success();
  const std::string node = valueName(getValue()) + "_grad";
  llvm::SmallVector<mlir::NamedAttribute> attributes;
  addAlpha(attributes, gradients.builder(), getAlphaAttr());
  mlir::Operation* op = gradients.create(
      *this, "scale", node, {value.value, {}},
      {{isOfCaller(getValue()) ? gradientName(getValue()) : node + "_y", getValue().getType()}}, attributes);
  value.value = op->getResult(0);
  return gradients.add(*this, getValue(), value);
}

}  // namespace sluice::moe
