// Verifiers of moe.graph and moe.entry: limits, names, and what entries pass to each other.
#include <map>
#include <string>

#include "compiler/dialect/moe.h"
#include "llvm/ADT/StringMap.h"
#include "runtime/program/program.h"

namespace sluice::moe {

using llvm::StringRef;
using mlir::LogicalResult;
using mlir::success;

namespace {

LogicalResult checkRange(GraphOp graph, StringRef what, int64_t value, int64_t max) {
  if (value >= 1 && value <= max) return success();
  return graph.emitError("graph '") << graph.getSymName() << "': " << what << " is " << value
                                    << ", expected 1 to " << max;
}

LogicalResult checkName(mlir::Operation* op, StringRef what, StringRef name) {
  if (isValidName(name)) return success();
  return op->emitError(what)
         << " name '" << name
         << "', expected a letter or underscore, then letters, digits and underscores, at "
            "most 64 characters";
}

// MLIR keeps attributes that an op does not declare, so that a misspelled one would have no effect. Those
// with the prefix of a dialect are notes of passes.
LogicalResult checkAttributes(mlir::Operation& op) {
  for (mlir::NamedAttribute attribute : op.getDiscardableAttrs()) {
    const StringRef name = attribute.getName().getValue();
    if (name.contains('.')) continue;
    auto node = mlir::dyn_cast<NodeOp>(op);
    mlir::InFlightDiagnostic diagnostic = node ? nodeError(node) : op.emitError("'") << op.getName() << "'";
    diagnostic << " has an attribute '" << name << "', expected those of " << op.getName() << ":";
    const char* separator = " ";
    for (mlir::StringAttr known : op.getName().getAttributeNames()) {
      if (known.getValue().starts_with("operand")) continue;  // the numbers of optional operands
      diagnostic << separator << known.getValue();
      separator = ", ";
    }
    return diagnostic;
  }
  return success();
}

}  // namespace

LogicalResult GraphOp::verify() {
  const int64_t ranks = getRanks(), experts = getExperts();
  const auto spare = static_cast<int64_t>(getSpare().value_or(0));
  if (failed(checkAttributes(**this)) || failed(checkName(*this, "graph", getSymName())) ||
      failed(checkRange(*this, "ranks", ranks, kMaxRanks)) ||
      failed(checkRange(*this, "tp", getTp().value_or(1), ranks)) ||
      failed(checkRange(*this, "experts", experts, kMaxExperts)) ||
      failed(checkRange(*this, "top_k", getTopK(), kMaxTopK)) ||
      failed(checkRange(*this, "max_tokens", getMaxTokens(), kMaxTokens)))
    return mlir::failure();
  if (ranks % static_cast<int64_t>(getTp().value_or(1)) != 0)
    return emitError("graph '") << getSymName() << "': tp is " << *getTp() << ", expected a divisor of "
                                << ranks << " ranks";
  if (spare < 0 || spare >= experts)
    return emitError("graph '") << getSymName() << "': " << spare << " of " << experts
                                << " places are spare, expected at least one that is not";
  if (static_cast<int64_t>(getTopK()) > experts - spare)
    return emitError("graph '") << getSymName() << "': top_k is " << getTopK() << ", but there are only "
                                << experts - spare << " experts";
  for (mlir::NamedAttribute symbol : getSymbols()) {
    if (failed(checkName(*this, "symbol", symbol.getName()))) return mlir::failure();
    const auto value = mlir::dyn_cast<mlir::IntegerAttr>(symbol.getValue());
    if (!value || !value.getType().isInteger(64)) {
      return emitError("graph '") << getSymName() << "': symbol '" << symbol.getName().getValue()
                                  << "' is not an i64";
    }
  }
  return success();
}

// Tensors of tokens are whole, and the sharding of other outputs follows from inputs that the caller knows.
LogicalResult OutputOp::verify() {
  if (!getSharding()) return success();
  const auto type = mlir::cast<MoeTensorType>(getValue().getType());
  if (!type.hasRows())
    return emitError("output '") << getTensor() << "' is " << shapeText(type) << " and declares to be "
                                 << text::word(*getSharding()) << ", which only outputs of rows do";
  if (*getSharding() == Sharding::kColumns || *getSharding() == Sharding::kGateUpColumns ||
      *getSharding() == Sharding::kWhole)
    return success();
  return emitError("output '") << getTensor() << "' of rows declares to be " << text::word(*getSharding())
                               << ", expected whole, columns or gate_up_columns";
}

// --- Entries -------------------------------------------------------------------------------------------

namespace {

// How one entry uses the tensors of a graph, by name.
class EntryVerifier {
 public:
  explicit EntryVerifier(EntryOp entry) : entry_(entry) {}

  LogicalResult run() {
    if (failed(checkAttributes(*entry_)) || failed(checkName(entry_, "entry", entry_.getSymName())))
      return mlir::failure();
    for (mlir::Operation& op : entry_.getBody().front()) {
      if (failed(checkAttributes(op)) || failed(visit(op)) || failed(visitAccumulation(op)))
        return mlir::failure();
    }
    if (routing_ == nullptr)
      return entry_.emitError("entry '")
             << entry_.getSymName() << "' has no routing, expected a route node or a saved routing";
    return success();
  }

 private:
  LogicalResult visit(mlir::Operation& op) {
    if (failed(visitRouting(op))) return mlir::failure();
    if (auto node = mlir::dyn_cast<NodeOp>(op)) return define(nodes_, op, "node", node.getNode());
    if (auto input = mlir::dyn_cast<InputOp>(op)) return define(tensors_, op, "tensor", input.getTensor());
    if (auto saved = mlir::dyn_cast<SavedOp>(op)) return define(tensors_, op, "tensor", saved.getTensor());
    if (auto output = mlir::dyn_cast<OutputOp>(op))
      return visitSink(op, output.getTensor(), output.getValue());
    if (auto save = mlir::dyn_cast<SaveOp>(op)) return visitSink(op, save.getTensor(), save.getValue());
    return op.emitError("'") << op.getName()
                             << "' in an entry, expected nodes, inputs, outputs and saved tensors";
  }

  // Only the caller's memory has old content to which a sum can be added.
  LogicalResult visitAccumulation(mlir::Operation& op) {
    const auto isOutput = [](mlir::Operation* user) { return mlir::isa<OutputOp>(user); };
    if (!isSum(&op) || !op.hasAttr(kAccumulate) || llvm::any_of(op.getResult(0).getUsers(), isOutput))
      return success();
    return nodeError(mlir::cast<NodeOp>(op))
           << " accumulates, but its gradient is not an output of entry '" << entry_.getSymName() << "'";
  }

  LogicalResult visitRouting(mlir::Operation& op) {
    for (mlir::Value result : op.getResults()) {
      if (!mlir::isa<RoutingType>(result.getType())) continue;
      if (routing_ != nullptr) {
        mlir::InFlightDiagnostic diagnostic = op.emitError("entry '")
                                              << entry_.getSymName() << "' has a second routing";
        diagnostic.attachNote(routing_->getLoc()) << "the first is here";
        return diagnostic;
      }
      routing_ = &op;
    }
    return success();
  }

  // Each output and each saved tensor has its own memory: a node of this entry writes it, and a value goes to
  // only one of them.
  LogicalResult visitSink(mlir::Operation& op, StringRef name, mlir::Value value) {
    if (!mlir::isa_and_present<NodeOp>(value.getDefiningOp()))
      return op.emitError("tensor '")
             << name << "' is not produced by a node of entry '" << entry_.getSymName() << "'";
    const auto [it, isNew] = sinks_.try_emplace(value, &op);
    if (!isNew) {
      mlir::InFlightDiagnostic diagnostic = op.emitError("tensor '")
                                            << name << "' is an output or saved twice";
      diagnostic.attachNote(it->second->getLoc()) << "it also goes here";
      return diagnostic;
    }
    return define(tensors_, op, "tensor", name);
  }

  LogicalResult define(llvm::StringMap<mlir::Operation*>& table, mlir::Operation& op, StringRef what,
                       StringRef name) {
    if (failed(checkName(&op, what, name))) return mlir::failure();
    const auto [it, isNew] = table.try_emplace(name, &op);
    if (isNew) return success();
    mlir::InFlightDiagnostic diagnostic =
        op.emitError(what) << " '" << name << "' is defined twice in entry '" << entry_.getSymName() << "'";
    diagnostic.attachNote(it->second->getLoc()) << "it is first defined here";
    return diagnostic;
  }

  EntryOp entry_;
  mlir::Operation* routing_ = nullptr;
  llvm::StringMap<mlir::Operation*> nodes_;
  llvm::StringMap<mlir::Operation*> tensors_;
  llvm::DenseMap<mlir::Value, mlir::Operation*> sinks_;
};

}  // namespace

LogicalResult EntryOp::verifyRegions() { return EntryVerifier(*this).run(); }

// --- Between entries -----------------------------------------------------------------------------------

namespace {

class GraphVerifier {
 public:
  explicit GraphVerifier(GraphOp graph) : graph_(graph) {}

  LogicalResult run() {
    for (mlir::Operation& op : graph_.getBody().front()) {
      auto entry = mlir::dyn_cast<EntryOp>(op);
      if (!entry) return op.emitError("'") << op.getName() << "' in a graph, expected entries";
      if (failed(visit(entry))) return mlir::failure();
    }
    if (!entries_.empty()) return success();
    return graph_.emitError("graph '") << graph_.getSymName() << "' has no entry";
  }

 private:
  LogicalResult visit(EntryOp entry) {
    if (entry.getAfter() && !entries_.contains(*entry.getAfter()))
      return entry.emitError("entry '") << entry.getSymName() << "' runs after '" << *entry.getAfter()
                                        << "', which is not an earlier entry";
    entries_.try_emplace(entry.getSymName(), entry);
    for (mlir::Operation& op : entry.getBody().front()) {
      if (auto saved = mlir::dyn_cast<SavedOp>(op)) {
        if (failed(visitSaved(entry, saved))) return mlir::failure();
      } else if (auto input = mlir::dyn_cast<InputOp>(op)) {
        if (failed(visitInput(input))) return mlir::failure();
      } else if (auto output = mlir::dyn_cast<OutputOp>(op)) {
        if (failed(define(output, output.getTensor()))) return mlir::failure();
      } else if (auto save = mlir::dyn_cast<SaveOp>(op)) {
        if (failed(define(save, save.getTensor()))) return mlir::failure();
      } else if (auto node = mlir::dyn_cast<NodeOp>(op)) {
        if (failed(visitNode(node))) return mlir::failure();
      }
    }
    return success();
  }

  // Searches the entries that `entry` runs after, nearest first.
  LogicalResult visitSaved(EntryOp entry, SavedOp saved) {
    std::optional<StringRef> before = entry.getAfter();
    while (before) {
      EntryOp earlier = entries_.lookup(*before);
      for (auto save : earlier.getBody().front().getOps<SaveOp>()) {
        if (save.getTensor() == saved.getTensor()) return checkSameType(save, saved);
      }
      before = earlier.getAfter();
    }
    return saved.emitError("tensor '") << saved.getTensor() << "' is not saved by an entry that entry '"
                                       << entry.getSymName() << "' runs after";
  }

  LogicalResult checkSameType(SaveOp save, SavedOp saved) {
    const mlir::Type before = save.getValue().getType(), now = saved.getValue().getType();
    if (before == now) return success();
    mlir::InFlightDiagnostic diagnostic = saved.emitError("tensor '")
                                          << saved.getTensor() << "' is " << shapeText(now)
                                          << ", but was saved as " << shapeText(before);
    diagnostic.attachNote(save.getLoc()) << "it is saved here";
    return diagnostic;
  }

  // Entries may share an input if they agree on its type.
  LogicalResult visitInput(InputOp input) {
    const auto it = producers_.find(input.getTensor());
    if (it == producers_.end()) return define(input, input.getTensor());
    auto other = mlir::dyn_cast<InputOp>(it->second);
    if (!other) return define(input, input.getTensor());
    const mlir::Type before = other.getValue().getType(), now = input.getValue().getType();
    const Sharding shardBefore = other.getSharding().value_or(Sharding::kWhole),
                   shardNow = input.getSharding().value_or(Sharding::kWhole);
    if (before == now && shardBefore == shardNow) return success();
    mlir::InFlightDiagnostic diagnostic =
        before != now ? input.emitError("input '") << input.getTensor() << "' is " << shapeText(now)
                                                   << ", but " << shapeText(before) << " in another entry"
                      : input.emitError("input '")
                            << input.getTensor() << "' is " << text::word(shardNow) << ", but "
                            << text::word(shardBefore) << " in another entry";
    diagnostic.attachNote(other.getLoc()) << "the other one is here";
    return diagnostic;
  }

  // A result that becomes an output or is saved has the name that it has there: only the sink defines it.
  LogicalResult visitNode(NodeOp node) {
    for (mlir::Value result : node->getResults()) {
      const StringRef name = tensorName(result);
      const auto isSink = [](mlir::Operation* user) { return mlir::isa<OutputOp, SaveOp>(user); };
      if (name.empty() || llvm::any_of(result.getUsers(), isSink)) continue;
      if (failed(define(node, name))) return mlir::failure();
    }
    return success();
  }

  LogicalResult define(mlir::Operation* op, StringRef name) {
    const auto [it, isNew] = producers_.try_emplace(name, op);
    if (isNew) return success();
    mlir::InFlightDiagnostic diagnostic = op->emitError("tensor '") << name << "' is defined twice";
    diagnostic.attachNote(it->second->getLoc()) << "it is first defined here";
    return diagnostic;
  }

  GraphOp graph_;
  llvm::StringMap<EntryOp> entries_;
  llvm::StringMap<mlir::Operation*> producers_;
};

}  // namespace

LogicalResult GraphOp::verifyRegions() { return GraphVerifier(*this).run(); }

}  // namespace sluice::moe
