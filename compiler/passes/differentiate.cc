// 1. Find which values need a gradient: those that depend on a trainable input and that an output depends on.
// 2. Make the entry `backward` with everything of the forward available: its inputs, and its values as saved.
// 3. Ask the nodes of the forward, last first, for their contributions. 4. Output the gradients of the
// trainable inputs; drop the nodes that none of them reads. 5. To keep little, recompute what can be
// recomputed from values that are kept anyway. 6. Drop the sources without readers; save the remaining
// values.
#include "compiler/analysis/gradients.h"
#include "compiler/dialect/moe_gradient.h"
#include "compiler/passes/names.h"
#include "compiler/passes/passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace sluice {

#define GEN_PASS_DEF_DIFFERENTIATE
#include "compiler/passes/passes.h.inc"

namespace {

using mlir::LogicalResult;
using mlir::Value;

moe::MoeTensorType tensorType(Value value) { return llvm::dyn_cast<moe::MoeTensorType>(value.getType()); }

// Routings, ids, codes, their scales, zeros and factors have no gradient.
bool isDifferentiable(Value value) {
  const moe::MoeTensorType type = tensorType(value);
  if (!type || !llvm::isa<mlir::FloatType>(type.getElementType())) return false;
  return llvm::none_of(value.getUsers(), [&](mlir::Operation* user) {
    auto product = llvm::dyn_cast<moe::GmmOp>(user);
    return product && (product.getWeightScale() == value || product.getWeightZero() == value ||
                       product.getWeightFactor() == value || product.getRowScale() == value);
  });
}

bool isOfRows(Value value) { return tensorType(value) && tensorType(value).hasRows(); }

std::optional<moe::Keep> parseKeep(llvm::StringRef word) {
  return llvm::StringSwitch<std::optional<moe::Keep>>(word)
      .Case("all", moe::Keep::kAll)
      .Case("minimal", moe::Keep::kMinimal)
      .Case("regather", moe::Keep::kRegather)
      .Default(std::nullopt);
}

llvm::StringSet<> collectTensorNames(moe::EntryOp entry) {
  llvm::StringSet<> names;
  entry.walk([&](mlir::Operation* op) {
    for (Value result : op->getResults()) names.insert(moe::tensorName(result));
    if (auto output = llvm::dyn_cast<moe::OutputOp>(op)) names.insert(output.getTensor());
    if (auto save = llvm::dyn_cast<moe::SaveOp>(op)) names.insert(save.getTensor());
  });
  return names;
}

class Differentiation {
 public:
  Differentiation(moe::EntryOp forward, std::vector<std::string> trainable, moe::Keep keep)
      : forward_(forward), builder_(forward), names_(std::move(trainable)), keep_(keep) {}

  LogicalResult run() {
    if (failed(findTrainable()) || failed(findNeeded()) || failed(checkWhole())) return mlir::failure();
    prepareBackward();
    if (failed(deriveNodes())) return mlir::failure();
    dropUnreadNodes();
    recompute();
    dropUnreadSources();
    saveValues();
    return mlir::success();
  }

 private:
  mlir::Block& forwardBlock() { return forward_.getBody().front(); }
  mlir::Block& backwardBlock() { return backward_.getBody().front(); }

  LogicalResult findTrainable() {
    llvm::MapVector<llvm::StringRef, moe::InputOp> inputs;
    for (auto input : forwardBlock().getOps<moe::InputOp>())
      if (isDifferentiable(input.getValue())) inputs.insert({input.getTensor(), input});
    for (const std::string& name : names_) {
      if (inputs.contains(name)) continue;
      mlir::InFlightDiagnostic error = forward_.emitError("cannot train '")
                                       << name << "', expected inputs of entry '" << forward_.getSymName()
                                       << "' that have a gradient: ";
      llvm::interleaveComma(inputs, error, [&](const auto& input) { error << input.first; });
      return error;
    }
    for (const auto& [name, input] : inputs)
      if (names_.empty() || llvm::is_contained(names_, name)) trainable_.push_back(input);
    if (!trainable_.empty()) return mlir::success();
    return forward_.emitError("entry '") << forward_.getSymName() << "' has no input that can be trained";
  }

  LogicalResult findNeeded() {
    llvm::DenseMap<Value, size_t> numbers;
    std::vector<Value> values;
    const auto numbersOf = [&](auto range) {
      std::vector<size_t> found;
      for (Value value : range) {
        if (!isDifferentiable(value)) continue;
        const auto [it, isNew] = numbers.try_emplace(value, values.size());
        if (isNew) values.push_back(value);
        found.push_back(it->second);
      }
      return found;
    };
    std::vector<GradientNode> nodes;
    for (auto node : forwardBlock().getOps<moe::NodeOp>())
      nodes.push_back({numbersOf(node->getOperands()), numbersOf(node->getResults())});
    std::vector<Value> trained, seeds;
    for (moe::InputOp input : trainable_) trained.push_back(input.getValue());
    for (auto output : forwardBlock().getOps<moe::OutputOp>())
      if (moe::isResult(output)) seeds.push_back(output.getValue());
    const auto trainedNumbers = numbersOf(trained), seedNumbers = numbersOf(seeds);
    const std::vector<bool> marks = tensorsWithGradient(nodes, values.size(), trainedNumbers, seedNumbers);
    for (size_t number = 0; number < marks.size(); ++number)
      if (marks[number]) needed_.insert(values[number]);
    return checkUseful();
  }

  // A named tensor must have a gradient; "all" selects the inputs that have one.
  LogicalResult checkUseful() {
    for (moe::InputOp input : trainable_)
      if (!needed_.contains(input.getValue()) && !names_.empty())
        return input.emitError("no output of entry '") << forward_.getSymName() << "' depends on '"
                                                       << input.getTensor() << "', so it has no gradient";
    llvm::erase_if(trainable_, [&](moe::InputOp input) { return !needed_.contains(input.getValue()); });
    if (!trainable_.empty()) return mlir::success();
    return forward_.emitError("no output of entry '")
           << forward_.getSymName() << "' depends on an input that can be trained";
  }

  // The ranks of a group would each have a term of its gradient.
  LogicalResult checkWhole() {
    const int32_t tp = forward_->getParentOfType<moe::GraphOp>().getMesh().tp;
    for (moe::InputOp input : trainable_) {
      const Sharding sharding = input.getSharding().value_or(Sharding::kWhole);
      if (tp == 1 || sharding != Sharding::kWhole || !isOfRows(input.getValue())) continue;
      return input.emitError("input '") << input.getTensor() << "' of rows is whole at each of " << tp
                                        << " ranks, so that its gradient would be a sum over them, for which "
                                           "there is no op: expected a part "
                                           "of its columns, or other trainable inputs";
    }
    return mlir::success();
  }

  void prepareBackward() {
    builder_.setInsertionPointAfter(forward_);
    backward_ = builder_.create<moe::EntryOp>(forward_.getLoc(), builder_.getStringAttr(kBackward),
                                              mlir::FlatSymbolRefAttr::get(forward_.getSymNameAttr()));
    builder_.setInsertionPointToEnd(&backward_.getBody().emplaceBlock());
    tensorNames_ = collectTensorNames(forward_);
    for (auto output : forwardBlock().getOps<moe::OutputOp>())
      if (needed_.contains(output.getValue()) && moe::isResult(output)) addSeed(output);
    for (auto input : forwardBlock().getOps<moe::InputOp>())
      kept_.map(input.getValue(), builder_.clone(*input)->getResult(0));
    for (const bool routings : {false, true})
      for (auto node : forwardBlock().getOps<moe::NodeOp>())
        for (Value result : node->getResults())
          if (llvm::isa<moe::RoutingType>(result.getType()) == routings) addSaved(node, result);
  }

  void addSeed(moe::OutputOp output) {
    const std::string name = moe::takeName(tensorNames_, moe::gradientName(output.getValue()));
    auto input = builder_.create<moe::InputOp>(output.getLoc(), output.getValue().getType(),
                                               builder_.getStringAttr(name), output.getShardingAttr());
    seeds_.push_back({output, input.getValue()});
  }

  void addSaved(moe::NodeOp node, Value value) {
    std::string name = moe::tensorName(value).str();
    if (name.empty()) name = moe::takeName(tensorNames_, node.getNode());
    auto saved = builder_.create<moe::SavedOp>(value.getLoc(), value.getType(), builder_.getStringAttr(name));
    kept_.map(value, saved.getValue());
    saved_.push_back({value, saved});
  }

  LogicalResult deriveNodes() {
    moe::GradientBuilder gradients(backward_, kept_, needed_, tensorNames_);
    const auto nodes = llvm::to_vector(forwardBlock().getOps<moe::NodeOp>());
    for (auto& [output, seed] : seeds_) {
      auto node = output.getValue().getDefiningOp<moe::NodeOp>();
      if (failed(gradients.add(node, output.getValue(), {.value = seed}))) return mlir::failure();
    }
    Value routing;
    for (moe::NodeOp node : llvm::reverse(nodes)) {
      for (Value result : node->getResults())
        if (llvm::isa<moe::RoutingType>(result.getType())) routing = result;
      if (failed(deriveNode(node, gradients))) return mlir::failure();
    }
    if (failed(checkRowsOfCaller(gradients)) || failed(gradients.finish(routing))) return mlir::failure();
    std::vector<std::pair<moe::InputOp, Value>> outputs;
    for (moe::InputOp input : trainable_) {
      auto reader = llvm::cast<moe::NodeOp>(*llvm::find_if(
          input.getValue().getUsers(), [](mlir::Operation* user) { return llvm::isa<moe::NodeOp>(user); }));
      const Value value = gradients.ownedAs(reader, gradients.find(input.getValue())->value,
                                            moe::gradientName(input.getValue()));
      outputs.push_back({input, value});
    }
    builder_.setInsertionPointToEnd(&backwardBlock());
    for (auto [input, value] : outputs) {
      builder_.create<moe::OutputOp>(input.getLoc(), builder_.getStringAttr(moe::tensorName(value)), value,
                                     isOfRows(value) ? input.getShardingAttr() : moe::ShardingAttr());
    }
    return mlir::success();
  }

  // Weights are applied, and their gradients computed, by an activation or where rows return to their tokens.
  LogicalResult checkRowsOfCaller(const moe::GradientBuilder& gradients) {
    for (auto input : forwardBlock().getOps<moe::InputOp>()) {
      const moe::Gradient* rows = gradients.find(input.getValue());
      if (rows == nullptr || !rows->scale || !(rows->wantsDot || llvm::is_contained(trainable_, input)))
        continue;
      return input.emitError("input '")
             << input.getTensor()
             << "' gives rows that are weighted without an activation between, so there is no "
             << "op for the gradient of "
             << (rows->wantsDot ? "the weights '" : "these rows with the weights '")
             << moe::valueName(rows->weights) << "'";
    }
    return mlir::success();
  }

  static LogicalResult deriveNode(moe::NodeOp node, moe::GradientBuilder& gradients) {
    const auto hasGradient = [&](Value result) { return gradients.find(result) != nullptr; };
    if (llvm::none_of(node->getResults(), hasGradient)) return mlir::success();
    if (auto op = llvm::dyn_cast<moe::DifferentiableOp>(*node)) return op.buildGradients(gradients);
    return moe::nodeError(node) << " (" << node->getName()
                                << ") has no derivative, but a trainable tensor needs one";
  }

  // Users come after the values they use: one pass from the end is enough.
  void dropUnreadNodes() {
    for (mlir::Operation& op : llvm::make_early_inc_range(llvm::reverse(backwardBlock()))) {
      if (!llvm::isa<moe::NodeOp>(op)) continue;
      if (op.use_empty()) {
        op.erase();
      } else if (auto dispatch = llvm::dyn_cast<moe::DispatchOp>(op)) {
        dropRowWeights(dispatch);
      } else if (auto grad = llvm::dyn_cast<moe::ActivationGradOp>(op)) {
        // The weight scales the first result only.
        if (grad.getGateUpGrad().use_empty()) grad.getRowWeightsMutable().clear();
      }
    }
  }

  // An entry has a routing even if only dense nodes are trained.
  void dropUnreadSources() {
    for (mlir::Operation& op : llvm::make_early_inc_range(backwardBlock())) {
      const bool isSource = llvm::isa<moe::InputOp, moe::SavedOp>(op);
      if (isSource && op.use_empty() && tensorType(op.getResult(0))) op.erase();
    }
  }

  // A value is recomputed only from what is kept or given anyway; otherwise its operands would be kept for
  // it.
  void recompute() {
    std::vector<Value> kept;
    for (auto& [value, saved] : saved_)
      if (!saved->use_empty()) kept.push_back(value);
    const llvm::DenseSet<Value> recomputed = moe::recomputable(kept, keep_);
    llvm::StringSet<> nodes;
    for (auto node : backwardBlock().getOps<moe::NodeOp>()) nodes.insert(node.getNode());
    for (auto& [value, saved] : saved_) {
      if (!recomputed.contains(value)) continue;
      const auto isBefore = [](mlir::Operation* a, mlir::Operation* b) { return a->isBeforeInBlock(b); };
      const auto users = llvm::to_vector(saved->getUsers());
      builder_.setInsertionPoint(*std::ranges::min_element(users, isBefore));
      mlir::Operation* again = builder_.clone(*value.getDefiningOp(), kept_);
      const std::string name = moe::valueName(value) + "_again";
      again->setAttr("node", builder_.getStringAttr(moe::takeName(nodes, name)));
      again->setAttr("tensors", builder_.getStrArrayAttr({moe::takeName(tensorNames_, name)}));
      again->removeAttr("split");
      saved.getValue().replaceAllUsesWith(again->getResult(0));
    }
  }

  void dropRowWeights(moe::DispatchOp dispatch) {
    if (!dispatch.getRowWeights() || !dispatch.getRowWeights().use_empty()) return;
    mlir::OpBuilder builder(dispatch);
    const auto tensors = builder.getArrayAttr(dispatch.getTensorsAttr().getValue().drop_back());
    auto plain = builder.create<moe::DispatchOp>(
        dispatch.getLoc(), mlir::TypeRange{dispatch.getRows().getType()}, dispatch.getTokens(),
        dispatch.getRouting(), Value(), dispatch.getNodeAttr(), tensors, dispatch.getSplitAttr());
    dispatch.getRows().replaceAllUsesWith(plain.getRows());
    dispatch.erase();
  }

  // Saves exactly what the backward entry still reads, and removes everything that the forward kept before.
  void saveValues() {
    llvm::DenseSet<mlir::Operation*> read;
    for (auto saved : backwardBlock().getOps<moe::SavedOp>()) read.insert(saved);
    llvm::erase_if(saved_, [&](const auto& saved) { return !read.contains(saved.second); });
    for (mlir::Operation& op : llvm::make_early_inc_range(llvm::reverse(forwardBlock()))) {
      auto output = llvm::dyn_cast<moe::OutputOp>(op);
      const bool isKept = llvm::isa<moe::SaveOp>(op) || (output && !moe::isResult(output));
      if (isKept) op.erase();
    }
    builder_.setInsertionPointToEnd(&forwardBlock());
    for (auto& [value, saved] : saved_)
      builder_.create<moe::SaveOp>(saved.getLoc(), saved.getTensorAttr(), value);
    for (mlir::Operation& op : llvm::make_early_inc_range(llvm::reverse(forwardBlock())))
      if (llvm::isa<moe::NodeOp>(op) && op.use_empty()) op.erase();
  }

  moe::EntryOp forward_;
  moe::EntryOp backward_;
  mlir::OpBuilder builder_;
  const std::vector<std::string> names_;
  const moe::Keep keep_;
  llvm::SmallVector<moe::InputOp> trainable_;
  llvm::DenseSet<Value> needed_;
  llvm::StringSet<> tensorNames_;
  mlir::IRMapping kept_;
  std::vector<std::pair<moe::OutputOp, Value>> seeds_;
  std::vector<std::pair<Value, moe::SavedOp>> saved_;
};

// Only outputs read a weight gradient, and an output has the type of its value.
void narrowGradient(mlir::Operation* op) {
  if (!moe::isSum(op)) return;
  const moe::MoeTensorType type = tensorType(op->getResult(0));
  op->getResult(0).setType(moe::MoeTensorType::get(type.getContext(), type.getShape(),
                                                   mlir::BFloat16Type::get(type.getContext())));
}

struct Differentiate : impl::DifferentiateBase<Differentiate> {
  using DifferentiateBase::DifferentiateBase;

  void runOnOperation() override {
    for (auto graph : llvm::to_vector(getOperation().getOps<moe::GraphOp>()))
      if (failed(differentiate(graph))) return signalPassFailure();
  }

  LogicalResult differentiate(moe::GraphOp graph) {
    auto entries = llvm::to_vector(graph.getOps<moe::EntryOp>());
    if (entries.size() != 1)
      return graph.emitError("graph '") << graph.getSymName() << "' has " << entries.size()
                                        << " entries, expected one: its backward is derived";
    if (entries.front().getSymName() == kBackward)
      return entries.front().emitError("entry '") << kBackward << "' has the name of the derived entry";
    const std::optional<moe::Keep> kept = parseKeep(keep.getValue());
    if (!kept) return graph.emitError("cannot keep '") << keep << "', expected all, minimal or regather";
    if (grads != "F32" && grads != "BF16")
      return graph.emitError("cannot derive weight gradients of type '")
             << grads << "', expected F32 or BF16";
    if (failed(Differentiation(entries.front(), {trainable.begin(), trainable.end()}, *kept).run()))
      return mlir::failure();
    if (accumulate) moe::accumulateAll(graph);
    if (grads == "BF16") graph.walk(narrowGradient);
    return mlir::success();
  }
};

}  // namespace
}  // namespace sluice
