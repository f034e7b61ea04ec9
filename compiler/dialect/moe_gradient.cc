// What each node contributes to a backward entry.
#include "compiler/dialect/moe_gradient.h"

namespace sluice::moe {

using llvm::StringRef;
using mlir::failure;
using mlir::LogicalResult;
using mlir::success;
using mlir::Value;

namespace {

// The tensor's name, or that of the node where it does not name its results.
std::string nameOf(Value value) {
  const StringRef name = tensorName(value);
  if (!name.empty()) return name.str();
  auto node = mlir::dyn_cast_if_present<NodeOp>(value.getDefiningOp());
  return node ? node.getNode().str() : "tensor";
}

mlir::Type vectorOfRows(mlir::OpBuilder& builder) {
  return MoeTensorType::get(builder.getContext(), {MoeTensorType::kRows}, builder.getF32Type());
}

// Which function an activation is: its attributes but those that all nodes have.
llvm::SmallVector<mlir::NamedAttribute> functionOf(ActivationOp op) {
  const llvm::StringSet<> common = {"node", "alias", "tensors", "split", "reference"};
  llvm::SmallVector<mlir::NamedAttribute> attributes;
  for (mlir::NamedAttribute attribute : op->getAttrDictionary())
    if (!common.contains(attribute.getName())) attributes.push_back(attribute);
  return attributes;
}

// The gradient of a weight has its shape, in f32.
mlir::Type gradientType(mlir::OpBuilder& builder, Value weight) {
  const auto type = mlir::cast<MoeTensorType>(weight.getType());
  return MoeTensorType::get(builder.getContext(), type.getShape(), builder.getF32Type());
}

}  // namespace

std::string gradientName(Value forward) {
  const std::string name = nameOf(forward);
  const auto type = mlir::dyn_cast<MoeTensorType>(forward.getType());
  if (!type || !type.hasTokens()) return name + "_grad";
  return (name.size() == 1 ? "d" : "d_") + name;
}

// --- GradientBuilder -----------------------------------------------------------------------------------

GradientBuilder::GradientBuilder(EntryOp backward, const mlir::IRMapping& kept,
                                 const llvm::DenseSet<Value>& needed, llvm::StringSet<> tensorNames)
    : builder_(mlir::OpBuilder::atBlockEnd(&backward.getBody().front())),
      kept_(kept),
      needed_(needed),
      tensors_(std::move(tensorNames)) {}

const Gradient* GradientBuilder::find(Value forward) const {
  const auto it = gradients_.find(forward);
  return it == gradients_.end() ? nullptr : &it->second;
}

LogicalResult GradientBuilder::add(NodeOp reader, Value forward, Gradient gradient) {
  if (gradients_.try_emplace(forward, gradient).second) return success();
  return reader->emitError("node '") << reader.getNode() << "' is a second one with a gradient for tensor '"
                                     << nameOf(forward) << "', expected one: there is no op that adds two";
}

LogicalResult GradientBuilder::carry(NodeOp reader, Value rows, Value scalars, Value weights) {
  if (carried_)
    return reader->emitError("node '")
           << reader.getNode() << "' and node '" << carried_->reader.getNode()
           << "' both contribute to the gradients of routing weights, expected one";
  carried_ = Carried{reader, rows, scalars, weights};
  return success();
}

mlir::FailureOr<Value> GradientBuilder::combine(NodeOp reader, Value routing, Value rows, Value weights,
                                                NewTensor sum) {
  const Value none;
  const std::optional<Carried> carried = std::exchange(carried_, std::nullopt);
  llvm::SmallVector<NewTensor> results = {std::move(sum)};
  if (carried) results.push_back({gradientName(carried->weights), carried->weights.getType()});
  const auto segments =
      builder_.getDenseI32ArrayAttr({1, 1, weights ? 1 : 0, static_cast<int32_t>(carried ? 1 : 0)});
  mlir::Operation* op =
      create(reader, "combine", "combine",
             {rows, kept(routing), weights ? kept(weights) : none, carried ? carried->scalars : none},
             results, {builder_.getNamedAttr(CombineOp::getOperandSegmentSizeAttr(), segments)});
  if (carried && failed(add(reader, carried->weights, {.value = op->getResult(1)}))) return failure();
  return op->getResult(0);
}

LogicalResult GradientBuilder::finish(Value routing) {
  if (!carried_) return success();
  const Value rows = carried_->rows;
  const auto type = mlir::cast<MoeTensorType>(rows.getType());
  const mlir::Type sum = MoeTensorType::get(
      type.getContext(), {MoeTensorType::kTokens, type.getShape().back()}, type.getElementType());
  return combine(carried_->reader, routing, rows, {}, {"returned_rows", sum});
}

std::string GradientBuilder::unused(llvm::StringSet<>& names, StringRef name) {
  std::string candidate = name.str();
  for (int number = 2; !names.insert(candidate).second; ++number)
    candidate = name.str() + "_" + std::to_string(number);
  return candidate;
}

mlir::Operation* GradientBuilder::create(NodeOp reader, StringRef op, StringRef node,
                                         llvm::ArrayRef<Value> operands, llvm::ArrayRef<NewTensor> results,
                                         llvm::ArrayRef<mlir::NamedAttribute> attributes) {
  mlir::OperationState state(reader->getLoc(), "moe." + op.str());
  for (Value operand : operands)
    if (operand) state.addOperands(operand);
  llvm::SmallVector<mlir::Attribute> names;
  for (const NewTensor& result : results) {
    state.addTypes(result.type);
    names.push_back(builder_.getStringAttr(unused(tensors_, result.name)));
  }
  state.addAttribute("node", builder_.getStringAttr(unused(nodes_, node)));
  state.addAttribute("tensors", builder_.getArrayAttr(names));
  state.addAttributes(attributes);
  return builder_.create(state);
}

// --- Nodes ---------------------------------------------------------------------------------------------

// Rows that came from tokens go back to them.
LogicalResult DispatchOp::buildGradients(GradientBuilder& gradients) {
  const Gradient* rows = gradients.find(getRows());
  if (rows == nullptr || gradients.find(getRowWeights()) != nullptr)
    return emitError("node '") << getNode() << "' gives row weights that need a gradient, expected rows only";
  if (rows->wantsDot)
    return emitError("node '") << getNode()
                               << "' gives rows that are weighted without an activation between, "
                               << "so there is no op for the gradient of the weights '"
                               << nameOf(rows->weights) << "'";
  if (!gradients.needs(getTokens())) return success();
  const Gradient from = *rows;
  const mlir::FailureOr<Value> sum = gradients.combine(*this, getRouting(), from.value, from.weights,
                                                       {gradientName(getTokens()), getTokens().getType()});
  if (failed(sum)) return failure();
  return gradients.add(*this, getTokens(), {.value = *sum});
}

// The rows of the product's gradient times the transposed weight, and per expert the outer product of both.
LogicalResult GmmOp::buildGradients(GradientBuilder& gradients) {
  const Gradient from = *gradients.find(getProduct());
  mlir::OpBuilder& builder = gradients.builder();
  if (gradients.needs(getRows()) || from.wantsDot) {
    // The reference calls the gradient of what was dispatched by the product it goes through.
    auto dispatch = getRows().getDefiningOp<DispatchOp>();
    const std::string node = dispatch ? "gate_grad" : nameOf(getRows()) + "_grad";
    const std::string tensor = dispatch ? "rows_" + gradientName(dispatch.getTokens()) : node + "_y";
    llvm::SmallVector<mlir::NamedAttribute> attributes;
    if (!getTranspose()) attributes.push_back(builder.getNamedAttr("transpose", builder.getUnitAttr()));
    mlir::Operation* op = gradients.create(*this, "gmm", node, {from.value, gradients.kept(getWeight())},
                                           {{tensor, getRows().getType()}}, attributes);
    Gradient rows = from;
    rows.value = op->getResult(0);
    if (failed(gradients.add(*this, getRows(), rows))) return failure();
  }
  if (!gradients.needs(getWeight())) return success();
  Value a = gradients.kept(getRows()), b = from.value;
  if (getTranspose()) std::swap(a, b);
  const std::string name = gradientName(getWeight());
  mlir::Operation* op = gradients.create(*this, "gmm_weight_grad", name, {a, b, from.scale},
                                         {{name, gradientType(builder, getWeight())}});
  return gradients.add(*this, getWeight(), {.value = op->getResult(0)});
}

// Applies the routing weight, and computes its gradient.
LogicalResult ActivationOp::buildGradients(GradientBuilder& gradients) {
  const Gradient from = *gradients.find(getAct());
  llvm::SmallVector<NewTensor> results = {{nameOf(getGateUp()) + "_grad", getGateUp().getType()}};
  if (from.wantsDot) results.push_back({"row_weight_grad", vectorOfRows(gradients.builder())});
  mlir::Operation* op =
      gradients.create(*this, "activation_grad", getNode().str() + "_grad",
                       {from.value, gradients.kept(getGateUp()), from.scale}, results, functionOf(*this));
  if (from.wantsDot && failed(gradients.carry(*this, from.value, op->getResult(1), from.weights)))
    return failure();
  if (!gradients.needs(getGateUp())) return success();
  return gradients.add(*this, getGateUp(), {.value = op->getResult(0)});
}

// Rows that went back to tokens are dispatched to the experts again, with the weights they were summed with.
LogicalResult CombineOp::buildGradients(GradientBuilder& gradients) {
  if (getTokenScalars() && gradients.find(getTokenScalars()) != nullptr)
    return emitError("node '") << getNode() << "' gives scalars that need a gradient, expected rows only";
  const bool wantsDot = getWeights() && gradients.needs(getWeights());
  if (!gradients.needs(getRows()) && !wantsDot) return success();
  const Gradient from = *gradients.find(getSum());
  llvm::SmallVector<NewTensor> results = {{"rows_" + nameOf(from.value), getRows().getType()}};
  if (getWeights()) results.push_back({"row_weights", vectorOfRows(gradients.builder())});
  const Value weights = getWeights() ? gradients.kept(getWeights()) : Value();
  mlir::Operation* op = gradients.create(*this, "dispatch", "dispatch",
                                         {from.value, gradients.kept(getRouting()), weights}, results);
  Gradient rows{.value = op->getResult(0)};
  if (getWeights()) rows = {op->getResult(0), op->getResult(1), getWeights(), wantsDot};
  return gradients.add(*this, getRows(), rows);
}

}  // namespace sluice::moe
