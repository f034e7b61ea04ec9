#include "compiler/import/import.h"

#include <map>

#include "compiler/dialect/moe.h"
#include "compiler/graph/ops.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Verifier.h"

namespace sluice {

namespace {

class Importer {
 public:
  Importer(const Graph& graph, mlir::MLIRContext& context) : graph_(graph), builder_(&context) {}

  mlir::OwningOpRef<mlir::ModuleOp> run() {
    mlir::OwningOpRef<mlir::ModuleOp> module(mlir::ModuleOp::create(locate(graph_.pos)));
    builder_.setInsertionPointToEnd(module->getBody());
    llvm::SmallVector<mlir::NamedAttribute> symbols;
    for (const GraphSymbol& symbol : graph_.symbols) symbols.push_back(named(symbol.name, symbol.value));
    auto op =
        builder_.create<moe::GraphOp>(locate(graph_.pos), graph_.name, graph_.ranks, graph_.experts,
                                      graph_.topK, graph_.maxTokens, builder_.getDictionaryAttr(symbols));
    op.getBody().emplaceBlock();
    for (const GraphEntry& entry : graph_.entries) {
      builder_.setInsertionPointToEnd(&op.getBody().front());
      importEntry(entry);
    }
    if (failed(mlir::verify(*module))) return {};
    return module;
  }

 private:
  mlir::Location locate(SourcePos pos) {
    return mlir::FileLineColLoc::get(builder_.getContext(), graph_.file, pos.line, pos.column);
  }

  mlir::StringAttr string(llvm::StringRef text) {
    return text.empty() ? nullptr : builder_.getStringAttr(text);
  }

  mlir::NamedAttribute named(llvm::StringRef name, mlir::Attribute value) {
    return builder_.getNamedAttr(name, value);
  }
  mlir::NamedAttribute named(llvm::StringRef name, int64_t value) {
    return named(name, builder_.getI64IntegerAttr(value));
  }

  mlir::Type typeOf(const GraphTensor& tensor) {
    mlir::MLIRContext* context = builder_.getContext();
    if (tensor.routing) return moe::RoutingType::get(context);
    llvm::SmallVector<int64_t> shape;
    for (const Dim& dim : tensor.shape) {
      shape.push_back(dim.extent == Extent::kTokens    ? moe::MoeTensorType::kTokens
                      : dim.extent == Extent::kRows    ? moe::MoeTensorType::kRows
                      : dim.extent == Extent::kExperts ? moe::MoeTensorType::kExperts
                                                       : dim.size);
    }
    const mlir::Type element = tensor.type == DType::kBF16  ? mlir::Type(builder_.getBF16Type())
                               : tensor.type == DType::kF32 ? mlir::Type(builder_.getF32Type())
                                                            : mlir::Type(builder_.getI32Type());
    return moe::MoeTensorType::get(context, shape, element);
  }

  void importEntry(const GraphEntry& entry) {
    mlir::FlatSymbolRefAttr after;
    if (!entry.after.empty()) after = mlir::FlatSymbolRefAttr::get(builder_.getContext(), entry.after);
    auto op = builder_.create<moe::EntryOp>(locate(entry.pos), builder_.getStringAttr(entry.name), after);
    builder_.setInsertionPointToEnd(&op.getBody().emplaceBlock());
    values_.clear();
    for (const TensorUse& use : entry.inputs) importSource<moe::InputOp>(use);
    for (const TensorUse& use : entry.saved) importSource<moe::SavedOp>(use);
    for (const GraphNode& node : entry.nodes) importNode(node);
    for (const TensorUse& use : entry.outputs) importSink<moe::OutputOp>(use);
    for (const TensorUse& use : entry.save) importSink<moe::SaveOp>(use);
  }

  template <class Op>
  void importSource(const TensorUse& use) {
    const GraphTensor& tensor = graph_.at(use.tensor);
    values_[use.tensor] = builder_.create<Op>(locate(use.pos), typeOf(tensor),
                                              builder_.getStringAttr(tensor.name), string(tensor.alias));
  }

  template <class Op>
  void importSink(const TensorUse& use) {
    const GraphTensor& tensor = graph_.at(use.tensor);
    builder_.create<Op>(locate(use.pos), builder_.getStringAttr(tensor.name), values_.at(use.tensor),
                        string(tensor.alias));
  }

  // Operands and results of an op stand in the order of the schema's ports.
  void importNode(const GraphNode& node) {
    mlir::OperationState state(locate(node.pos), "moe." + std::string(schemaOf(node.op).name));
    llvm::SmallVector<int32_t> segments;
    for (const TensorUse& use : node.inputs) {
      segments.push_back(use.tensor ? 1 : 0);
      if (use.tensor) state.addOperands(values_.at(use.tensor));
    }
    if (node.op == GraphOp::kCombine) {
      state.addAttribute("operandSegmentSizes", builder_.getDenseI32ArrayAttr(segments));
    }
    llvm::SmallVector<llvm::StringRef> names;
    for (const TensorUse& use : node.outputs) {
      if (!use.tensor) continue;
      state.addTypes(typeOf(graph_.at(use.tensor)));
      names.push_back(graph_.at(use.tensor).name);
    }
    state.addAttribute("tensors", builder_.getStrArrayAttr(names));
    addAttributes(node, state);
    mlir::Operation* op = builder_.create(state);
    unsigned index = 0;
    for (const TensorUse& use : node.outputs) {
      if (use.tensor) values_[use.tensor] = op->getResult(index++);
    }
  }

  void addAttributes(const GraphNode& node, mlir::OperationState& state) {
    mlir::MLIRContext* context = builder_.getContext();
    state.addAttribute("node", builder_.getStringAttr(node.name));
    if (!node.alias.empty()) state.addAttribute("alias", builder_.getStringAttr(node.alias));
    if (node.transpose) state.addAttribute("transpose", builder_.getUnitAttr());
    if (node.accumulate) state.addAttribute("accumulate", builder_.getUnitAttr());
    if (!node.kind.empty()) {
      state.addAttribute("kind",
                         moe::ActivationKindAttr::get(context, *moe::symbolizeActivationKind(node.kind)));
    }
    if (node.alpha) {
      state.addAttribute("alpha", builder_.getF32FloatAttr(static_cast<float>(*node.alpha)));
    }
    if (node.limit) {
      state.addAttribute("limit", builder_.getF32FloatAttr(static_cast<float>(*node.limit)));
    }
    if (node.split) state.addAttribute("split", splitOf(*node.split));
    if (node.reference) state.addAttribute("reference", referenceOf(*node.reference));
  }

  moe::SplitAttr splitOf(const GraphSplit& split) {
    const moe::SplitSpace space = split.space == GraphSpace::kTokens ? moe::SplitSpace::tokens
                                  : split.space == GraphSpace::kRows ? moe::SplitSpace::rows
                                                                     : moe::SplitSpace::experts;
    return moe::SplitAttr::get(builder_.getContext(), space, split.size);
  }

  // Pairs, since their order has a meaning: a split counts inputs by it.
  mlir::ArrayAttr slotsOf(const ReferencePlan::Slots& slots) {
    llvm::SmallVector<mlir::Attribute> pairs;
    for (const auto& [name, slot] : slots)
      pairs.push_back(
          builder_.getArrayAttr({builder_.getStringAttr(name), builder_.getI64IntegerAttr(slot)}));
    return builder_.getArrayAttr(pairs);
  }

  mlir::DictionaryAttr referenceOf(const ReferencePlan& plan) {
    llvm::SmallVector<mlir::NamedAttribute> fields;
    if (!plan.after.empty()) fields.push_back(named("after", builder_.getStringAttr(plan.after)));
    if (!plan.core.empty()) fields.push_back(named("core", builder_.getStringAttr(plan.core)));
    if (!plan.inputs.empty()) fields.push_back(named("inputs", slotsOf(plan.inputs)));
    if (!plan.outputs.empty()) fields.push_back(named("outputs", slotsOf(plan.outputs)));
    if (plan.tiling) fields.push_back(named("tiling", *plan.tiling));
    if (plan.split) {
      llvm::SmallVector<mlir::NamedAttribute> split = {named("rows", plan.split->rows)};
      if (plan.split->inputs) split.push_back(named("inputs", builder_.getI64ArrayAttr(*plan.split->inputs)));
      if (plan.split->dim) split.push_back(named("dim", *plan.split->dim));
      fields.push_back(named("split", builder_.getDictionaryAttr(split)));
    }
    return builder_.getDictionaryAttr(fields);
  }

  const Graph& graph_;
  mlir::OpBuilder builder_;
  std::map<TensorId, mlir::Value> values_;  // of the current entry
};

}  // namespace

mlir::OwningOpRef<mlir::ModuleOp> importGraph(const Graph& graph, mlir::MLIRContext& context) {
  context.loadDialect<moe::MoeDialect>();
  return Importer(graph, context).run();
}

}  // namespace sluice
