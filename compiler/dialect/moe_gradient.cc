// A backward entry while it is being derived; moe_derivatives.cc has the contribution of each node.
#include "compiler/dialect/moe_gradient.h"

namespace sluice::moe {

using llvm::StringRef;
using mlir::failure;
using mlir::LogicalResult;
using mlir::success;
using mlir::Value;

std::string valueName(Value value) {
  const StringRef name = tensorName(value);
  if (!name.empty()) return name.str();
  auto node = mlir::dyn_cast_if_present<NodeOp>(value.getDefiningOp());
  return node ? node.getNode().str() : "tensor";
}

bool isResult(OutputOp output) {
  const auto type = mlir::cast<MoeTensorType>(output.getValue().getType());
  const auto isNode = [](mlir::Operation* user) { return mlir::isa<NodeOp>(user); };
  return !type.hasRows() ||
         (type.getShape().size() == 2 && llvm::none_of(output.getValue().getUsers(), isNode));
}

namespace {

// Rows that the caller gives, or gets as a result.
bool isRowsOfCaller(Value forward) {
  const auto type = mlir::dyn_cast<MoeTensorType>(forward.getType());
  if (!type || !type.hasRows()) return false;
  const auto isResultOf = [](mlir::Operation* user) {
    auto output = mlir::dyn_cast<OutputOp>(user);
    return output && isResult(output);
  };
  return mlir::isa_and_present<InputOp>(forward.getDefiningOp()) ||
         llvm::any_of(forward.getUsers(), isResultOf);
}

// From what is at hand anyway, without a product.
bool canRecompute(Value value, const llvm::DenseSet<Value>& left, Keep keep) {
  auto node = value.getDefiningOp<DifferentiableOp>();
  if (!node) return false;
  auto dispatch = value.getDefiningOp<DispatchOp>();
  const bool isDispatched = dispatch && !dispatch.getWeights() && keep == Keep::kRegather;
  const auto isAtHand = [&](Value operand) {
    return mlir::isa_and_present<InputOp>(operand.getDefiningOp()) ||
           mlir::isa<RoutingType>(operand.getType()) || left.contains(operand);
  };
  return (node.isRecomputable() || isDispatched) && llvm::all_of(node->getOperands(), isAtHand);
}

}  // namespace

std::string gradientName(Value forward) {
  const std::string name = valueName(forward);
  const auto type = mlir::dyn_cast<MoeTensorType>(forward.getType());
  if (!type || !(type.hasTokens() || isRowsOfCaller(forward))) return name + "_grad";
  return (name.size() == 1 ? "d" : "d_") + name;
}

llvm::DenseSet<Value> recomputable(llvm::ArrayRef<Value> kept, Keep keep) {
  if (keep == Keep::kAll) return {};
  llvm::DenseSet<Value> left(kept.begin(), kept.end()), again;
  for (Value value : kept) {
    if (!canRecompute(value, left, keep)) continue;
    left.erase(value);
    again.insert(value);
  }
  return again;
}

std::string takeName(llvm::StringSet<>& taken, StringRef name) {
  std::string candidate = name.str();
  for (int number = 2; !taken.insert(candidate).second; ++number)
    candidate = name.str() + "_" + std::to_string(number);
  return candidate;
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
  return it == gradients_.end() ? nullptr : &it->second.gradient;
}

// 1. The first contribution is the gradient. 2. A node adds each further one to the current gradient. 3. The
// sum takes the gradient's name, so the names of outputs do not depend on the number of readers.
LogicalResult GradientBuilder::add(NodeOp reader, Value forward, Gradient gradient) {
  const auto [it, isNew] = gradients_.try_emplace(forward, Recorded{gradient, reader});
  if (isNew) return success();
  const Recorded before = it->second;
  if (failed(checkAddable(reader, forward, gradient, before))) return failure();
  const auto type = mlir::cast<MoeTensorType>(forward.getType());
  const std::string name = gradientName(forward);
  if (tensorName(before.gradient.value) == name) rename(before.gradient.value, name + "_1");
  mlir::Operation* sum = create(reader, "add", valueName(forward) + "_grad_sum",
                                {before.gradient.value, gradient.value}, {{name, type}});
  gradient.value = sum->getResult(0);
  gradients_[forward] = {gradient, reader};
  return success();
}

LogicalResult GradientBuilder::checkAddable(NodeOp reader, Value forward, const Gradient& gradient,
                                            const Recorded& before) {
  NodeOp first = before.reader;
  const auto type = mlir::cast<MoeTensorType>(forward.getType());
  const bool canAdd =
      (type.hasTokens() || type.hasRows()) && type.getShape().size() == 2 && type.getElementType().isBF16();
  const auto refuse = [&] {
    mlir::InFlightDiagnostic error = reader->emitError("node '");
    error << reader.getNode() << "' and node '" << first.getNode() << "' both contribute to the gradient of '"
          << valueName(forward) << "', ";
    error.attachNote(first->getLoc()) << "node '" << first.getNode() << "' is here";
    return error;
  };
  if (!canAdd) return refuse() << "but there is no op that adds tensors " << shapeText(type);
  if (gradient.weights == before.gradient.weights && gradient.wantsDot == before.gradient.wantsDot)
    return success();
  const auto quotedWeight = [](Value weights) {
    return weights ? "'" + valueName(weights) + "'" : "nothing";
  };
  return refuse() << "weighted by " << quotedWeight(gradient.weights) << " and by "
                  << quotedWeight(before.gradient.weights) << ", expected the same of both";
}

void GradientBuilder::addDot(NodeOp reader, Value rows, Value bias, Value weights) {
  dots_.push_back({reader, rows, bias, weights});
}

LogicalResult GradientBuilder::carry(NodeOp reader, Value rows, Value scalars, Value weights) {
  if (carried_)
    return nodeError(reader) << " and node '" << carried_->reader.getNode()
                             << "' both contribute to the gradients of routing weights, expected one";
  for (Dot& dot : dots_) {
    if (dot.weights != weights) continue;
    const NewTensor sum{valueName(dot.bias) + "_dot", scalars.getType()};
    scalars = create(dot.reader, "row_dot", sum.name, {dot.rows, kept(dot.bias), scalars}, sum)->getResult(0);
  }
  llvm::erase_if(dots_, [&](const Dot& dot) { return dot.weights == weights; });
  carried_ = Carried{reader, rows, scalars, weights};
  return success();
}

mlir::FailureOr<Value> GradientBuilder::combine(NodeOp reader, Value routing, Value rows, Value weights,
                                                NewTensor sum) {
  const Value none;
  const std::optional<Carried> carried = std::exchange(carried_, std::nullopt);
  llvm::SmallVector<NewTensor> results = {std::move(sum)};
  if (carried) results.push_back({gradientName(carried->weights), carried->weights.getType()});
  mlir::Operation* op =
      create(reader, "combine", "combine",
             {rows, kept(routing), weights ? kept(weights) : none, carried ? carried->scalars : none, none},
             results);
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

Value GradientBuilder::ownedAs(NodeOp reader, Value value, const std::string& name) {
  if (mlir::isa_and_present<NodeOp>(value.getDefiningOp()) && owned_.insert(value).second) {
    if (tensorName(value) != name) rename(value, name);
    return value;
  }
  const auto one = builder_.getNamedAttr("alpha", builder_.getF32FloatAttr(1));
  return create(reader, "scale", name + "_copy", {value, {}}, {{name, value.getType()}}, one)->getResult(0);
}

void GradientBuilder::rename(Value value, StringRef name) {
  auto node = mlir::dyn_cast_if_present<NodeOp>(value.getDefiningOp());
  if (!node) return;  // an input of the caller keeps its name
  llvm::SmallVector<mlir::Attribute> names(node.getTensorsAttr().getValue());
  mlir::Attribute& entry = names[mlir::cast<mlir::OpResult>(value).getResultNumber()];
  tensors_.erase(tensorName(value));
  entry = builder_.getStringAttr(takeName(tensors_, name));
  node->setAttr("tensors", builder_.getArrayAttr(names));
}

mlir::Operation* GradientBuilder::create(NodeOp reader, StringRef op, StringRef node,
                                         llvm::ArrayRef<Value> operands, llvm::ArrayRef<NewTensor> results,
                                         llvm::ArrayRef<mlir::NamedAttribute> attributes) {
  mlir::OperationState state(reader->getLoc(), "moe." + op.str());
  llvm::SmallVector<int32_t> segments;
  for (Value operand : operands) {
    segments.push_back(operand ? 1 : 0);
    if (operand) state.addOperands(operand);
  }
  if (state.name.hasTrait<mlir::OpTrait::AttrSizedOperandSegments>())
    state.addAttribute("operandSegmentSizes", builder_.getDenseI32ArrayAttr(segments));
  llvm::SmallVector<mlir::Attribute> names;
  for (const NewTensor& result : results) {
    state.addTypes(result.type);
    names.push_back(builder_.getStringAttr(takeName(tensors_, result.name)));
  }
  state.addAttribute("node", builder_.getStringAttr(takeName(nodes_, node)));
  state.addAttribute("tensors", builder_.getArrayAttr(names));
  state.addAttributes(attributes);
  return builder_.create(state);
}

}  // namespace sluice::moe
