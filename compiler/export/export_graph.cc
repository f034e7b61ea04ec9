#include "compiler/export/export_graph.h"

#include <fmt/format.h>

#include <set>

#include "compiler/graph/ops.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

namespace sluice {
namespace {

SourcePos posOf(mlir::Location location) {
  const auto place = location->findInstanceOf<mlir::FileLineColLoc>();
  if (!place) return {};
  return {static_cast<int32_t>(place.getLine()), static_cast<int32_t>(place.getColumn())};
}

std::string textOf(std::optional<llvm::StringRef> text) { return text ? text->str() : std::string(); }

int64_t numberOf(mlir::Attribute attribute) {
  const auto number = llvm::dyn_cast_if_present<mlir::IntegerAttr>(attribute);
  if (!number || number.getValue().getSignificantBits() > 64) return 0;
  return number.getValue().getSExtValue();
}

// --- What the reference plan says, by the fields that import writes --------------------------------------

std::string wordOf(mlir::Attribute attribute) {
  const auto word = llvm::dyn_cast_if_present<mlir::StringAttr>(attribute);
  return word ? word.str() : std::string();
}

ReferencePlan::Slots slotsOf(mlir::Attribute attribute) {
  ReferencePlan::Slots slots;
  const auto pairs = llvm::dyn_cast_if_present<mlir::ArrayAttr>(attribute);
  if (!pairs) return slots;
  for (mlir::Attribute item : pairs) {
    const auto pair = llvm::dyn_cast<mlir::ArrayAttr>(item);
    if (pair && pair.size() == 2) slots.emplace_back(wordOf(pair[0]), numberOf(pair[1]));
  }
  return slots;
}

std::optional<ReferencePlan> referenceOf(mlir::DictionaryAttr fields) {
  if (!fields) return std::nullopt;
  ReferencePlan plan;
  plan.after = wordOf(fields.get("after"));
  plan.core = wordOf(fields.get("core"));
  plan.inputs = slotsOf(fields.get("inputs"));
  plan.outputs = slotsOf(fields.get("outputs"));
  if (fields.contains("tiling")) plan.tiling = numberOf(fields.get("tiling"));
  if (const auto split = llvm::dyn_cast_if_present<mlir::DictionaryAttr>(fields.get("split"))) {
    plan.split.emplace();
    plan.split->rows = numberOf(split.get("rows"));
    if (split.contains("dim")) plan.split->dim = numberOf(split.get("dim"));
    if (const auto inputs = llvm::dyn_cast_if_present<mlir::ArrayAttr>(split.get("inputs"))) {
      plan.split->inputs.emplace();
      for (mlir::Attribute input : inputs) plan.split->inputs->push_back(numberOf(input));
    }
  }
  return plan;
}

// --- The graph -------------------------------------------------------------------------------------------

class Exporter {
 public:
  Exporter(moe::GraphOp op, const std::string& file) : op_(op) { graph_.file = file; }

  Expected<Graph> run() {
    graph_.name = op_.getSymName().str();
    graph_.pos = posOf(op_.getLoc());
    graph_.ranks = static_cast<int64_t>(op_.getRanks());
    graph_.experts = static_cast<int64_t>(op_.getExperts());
    graph_.topK = static_cast<int64_t>(op_.getTopK());
    graph_.maxTokens = static_cast<int64_t>(op_.getMaxTokens());
    for (const mlir::NamedAttribute& symbol : op_.getSymbols()) addSymbol(symbol);
    op_.walk([&](mlir::Operation* op) { reserveNames(op); });
    for (auto entry : op_.getOps<moe::EntryOp>()) addEntry(entry);
    if (error_) return *error_;
    return std::move(graph_);
  }

 private:
  void fail(mlir::Location location, const std::string& message) {
    const SourcePos pos = posOf(location);
    if (!error_)
      error_ = Error{fmt::format("{}:{}:{}: error: {}", graph_.file, pos.line, pos.column, message)};
  }

  void addSymbol(const mlir::NamedAttribute& symbol) {
    const int64_t value = numberOf(symbol.getValue());
    graph_.symbols.push_back({symbol.getName().str(), value, value, value, value, {}});
  }

  void reserveNames(mlir::Operation* op) {
    if (auto node = llvm::dyn_cast<moe::NodeOp>(op)) {
      for (mlir::Value result : node->getResults()) reserved_.insert(moe::tensorName(result).str());
    } else if (const auto name = op->getAttrOfType<mlir::StringAttr>("tensor")) {
      reserved_.insert(name.str());
    }
  }

  void addEntry(moe::EntryOp op) {
    GraphEntry entry;
    entry.name = op.getSymName().str();
    entry.after = textOf(op.getAfter());
    entry.pos = posOf(op.getLoc());
    for (auto save : op.getOps<moe::SaveOp>()) nameAs(save);
    for (auto output : op.getOps<moe::OutputOp>()) nameAs(output);
    for (auto input : op.getOps<moe::InputOp>())
      entry.inputs.push_back(define(input.getValue(), input.getTensor().str(), textOf(input.getAlias())));
    for (auto saved : op.getOps<moe::SavedOp>())
      entry.saved.push_back(define(saved.getValue(), saved.getTensor().str(), textOf(saved.getAlias())));
    for (auto node : op.getOps<moe::NodeOp>())
      for (mlir::Value result : node->getResults())
        define(result, nameOf(node, result), aliases_.lookup(result));
    for (auto node : op.getOps<moe::NodeOp>()) addNode(node, entry);
    for (auto output : op.getOps<moe::OutputOp>())
      entry.outputs.push_back(useOf(output.getValue(), output.getLoc()));
    for (auto save : op.getOps<moe::SaveOp>()) entry.save.push_back(useOf(save.getValue(), save.getLoc()));
    graph_.entries.push_back(std::move(entry));
  }

  // A tensor that leaves its entry goes by the name that it leaves under.
  template <class Sink>
  void nameAs(Sink sink) {
    leaves_[sink.getValue()] = sink.getTensor().str();
    aliases_[sink.getValue()] = textOf(sink.getAlias());
  }

  void addNode(moe::NodeOp op, GraphEntry& entry) {
    const llvm::StringRef word = op->getName().stripDialect();
    const OpSchema* schema = findOp({word.data(), word.size()});
    if (schema == nullptr)
      return fail(op.getLoc(), fmt::format("node '{}' is a {}, which graph files do not have",
                                           op.getNode().str(), word.str()));
    GraphNode node;
    node.name = op.getNode().str();
    node.alias = textOf(op.getAlias());
    node.op = schema->op;
    node.pos = posOf(op.getLoc());
    addInputs(op, *schema, node);
    for (size_t i = 0; i < schema->outputs.size(); ++i) {
      TensorUse& use = node.outputs.emplace_back();
      if (i < op->getNumResults()) use = useOf(op->getResult(static_cast<unsigned>(i)), op.getLoc());
    }
    addAttributes(op, node);
    entry.nodes.push_back(std::move(node));
  }

  // Operands stand in the order of the schema; only a combine may lack one before the last.
  void addInputs(moe::NodeOp op, const OpSchema& schema, GraphNode& node) {
    std::vector<mlir::Value> operands(op->getOperands().begin(), op->getOperands().end());
    if (auto combine = llvm::dyn_cast<moe::CombineOp>(op.getOperation()))
      operands = {combine.getRows(), combine.getRouting(), combine.getWeights(), combine.getScalars()};
    operands.resize(schema.inputs.size());
    for (mlir::Value operand : operands)
      node.inputs.push_back(operand ? useOf(operand, op.getLoc()) : TensorUse{});
  }

  void addAttributes(moe::NodeOp op, GraphNode& node) {
    node.transpose = op->hasAttr("transpose");
    node.accumulate = op->hasAttr("accumulate");
    if (const auto kind = op->getAttrOfType<moe::ActivationKindAttr>("kind"))
      node.kind = moe::stringifyActivationKind(kind.getValue()).str();
    if (const auto limit = op->getAttrOfType<mlir::FloatAttr>("limit")) node.limit = limit.getValueAsDouble();
    if (const auto alpha = op->getAttrOfType<mlir::FloatAttr>("alpha")) node.alpha = alpha.getValueAsDouble();
    if (const moe::SplitAttr split = op.getSplitAttr()) {
      const GraphSpace space = split.getSpace() == moe::SplitSpace::tokens ? GraphSpace::kTokens
                               : split.getSpace() == moe::SplitSpace::rows ? GraphSpace::kRows
                                                                           : GraphSpace::kExperts;
      node.split = GraphSplit{space, split.getSize()};
    }
    node.reference = referenceOf(op.getReferenceAttr());
  }

  std::string nameOf(moe::NodeOp op, mlir::Value result) {
    if (const auto leaves = leaves_.find(result); leaves != leaves_.end()) return leaves->second;
    const std::string own = moe::tensorName(result).str();
    if (!own.empty()) return own;
    std::string name;
    const std::string stem = op.getNode().str();
    for (int number = 0; name.empty() || reserved_.contains(name); ++number) {
      const std::string ending = fmt::format("_{}", number);
      name = stem.substr(0, kMaxName - ending.size()) + ending;
    }
    reserved_.insert(name);
    return name;
  }

  // The tensor of this name, made where it is new; `value` is one from now on.
  TensorUse define(mlir::Value value, const std::string& name, const std::string& alias) {
    const auto [known, fresh] = byName_.try_emplace(name, static_cast<uint32_t>(graph_.tensors.size()));
    const SourcePos pos = posOf(value.getLoc());
    const TensorUse use{TensorId{known->second}, pos};
    tensors_[value] = use.tensor;
    if (!fresh) return use;
    GraphTensor tensor;
    tensor.name = name;
    tensor.alias = alias;
    tensor.pos = pos;
    const auto type = llvm::dyn_cast<moe::MoeTensorType>(value.getType());
    tensor.routing = !type;
    if (type) {
      tensor.type = type.getElementType().isBF16()  ? DType::kBF16
                    : type.getElementType().isF32() ? DType::kF32
                                                    : DType::kI32;
      for (int64_t dim : type.getShape())
        tensor.shape.push_back(dim == moe::MoeTensorType::kTokens    ? Dim{Extent::kTokens, 0}
                               : dim == moe::MoeTensorType::kRows    ? Dim{Extent::kRows, 0}
                               : dim == moe::MoeTensorType::kExperts ? Dim{Extent::kExperts, 0}
                                                                     : Dim{Extent::kFixed, dim});
    }
    graph_.tensors.push_back(std::move(tensor));
    return use;
  }

  TensorUse useOf(mlir::Value value, mlir::Location location) {
    return {tensors_.lookup(value), posOf(location)};
  }

  static constexpr size_t kMaxName = 64;

  moe::GraphOp op_;
  Graph graph_;
  std::optional<Error> error_;
  std::set<std::string> reserved_;  // names of tensors
  llvm::StringMap<uint32_t> byName_;
  llvm::DenseMap<mlir::Value, TensorId> tensors_;
  llvm::DenseMap<mlir::Value, std::string> leaves_;   // by value, the name it is saved or given under
  llvm::DenseMap<mlir::Value, std::string> aliases_;  // likewise
};

}  // namespace

Expected<Graph> exportGraph(mlir::ModuleOp module, const std::string& file) {
  const auto graphs = llvm::to_vector(module.getOps<moe::GraphOp>());
  if (graphs.size() != 1)
    return Error{fmt::format("{}: error: has {} moe.graph ops, expected one", file, graphs.size())};
  return Exporter(graphs.front(), file).run();
}

}  // namespace sluice
