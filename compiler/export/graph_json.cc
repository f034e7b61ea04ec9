#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "compiler/dialect/diagnostics.h"
#include "compiler/dialect/element_type.h"
#include "compiler/dialect/moe.h"
#include "compiler/export/graph_text.h"
#include "compiler/graph/ops.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

Json shapeJson(moe::MoeTensorType type) {
  Json shape = Json::array();
  for (int64_t dim : type.getShape())
    shape.push_back(dim == moe::MoeTensorType::kTokens    ? Json("T")
                    : dim == moe::MoeTensorType::kRows    ? Json("R")
                    : dim == moe::MoeTensorType::kExperts ? Json("E")
                                                          : Json(dim));
  return shape;
}

Json typeJson(mlir::Type type) {
  const auto tensor = llvm::dyn_cast<moe::MoeTensorType>(type);
  if (!tensor) return {{"type", "routing"}};
  return {{"type", dtypeName(*findDType(tensor.getElementType()))}, {"shape", shapeJson(tensor)}};
}

// Entries first, since they name what the table of tensors holds.
class GraphPrinter {
 public:
  GraphPrinter(moe::GraphOp graph, const std::string& file) : graph_(graph), file_(file) {}

  Expected<std::string> run();

 private:
  void fail(mlir::Operation* op, const std::string& message) {
    const std::string source = formatLocation(op->getLoc());
    if (!error_) error_ = Error{fmt::format("{}: error: {}", source.empty() ? file_ : source, message)};
  }

  void reserveNames(mlir::Operation* op) {
    if (auto node = llvm::dyn_cast<moe::NodeOp>(op)) {
      for (mlir::Value result : node->getResults()) reserved_.insert(moe::tensorName(result).str());
    } else if (const auto name = op->getAttrOfType<mlir::StringAttr>("tensor")) {
      reserved_.insert(name.str());
    }
  }

  Json entryJson(moe::EntryOp op) {
    Json json{{"name", op.getSymName().str()}};
    if (op.getAfter()) json["after"] = op.getAfter()->str();
    for (auto save : op.getOps<moe::SaveOp>()) leaves(save);
    for (auto output : op.getOps<moe::OutputOp>()) leaves(output);
    addNames(json, "inputs", op.getOps<moe::InputOp>());
    addShardings(op.getOps<moe::InputOp>());
    addNames(json, "saved", op.getOps<moe::SavedOp>());
    for (auto node : op.getOps<moe::NodeOp>())
      for (mlir::Value result : node->getResults()) define(result, resultName(node, result));
    json["nodes"] = Json::array();
    for (auto node : op.getOps<moe::NodeOp>()) json["nodes"].push_back(nodeJson(node));
    addNames(json, "save", op.getOps<moe::SaveOp>());
    addNames(json, "outputs", op.getOps<moe::OutputOp>());
    addShardings(op.getOps<moe::OutputOp>());
    return json;
  }

  template <class Ops>
  void addShardings(Ops ops) {
    for (auto op : ops)
      if (const auto sharding = op.getSharding())
        tensors_[op.getTensor().str()]["parallel"] = text::word(*sharding);
  }

  // A tensor that leaves its entry goes by the name that it leaves under.
  template <class Sink>
  void leaves(Sink sink) {
    names_[sink.getValue()] = sink.getTensor().str();
  }

  template <class Ops>
  void addNames(Json& entry, const char* field, Ops ops) {
    Json names = Json::array();
    for (auto op : ops) {
      names.push_back(op.getTensor().str());
      if (op->getNumResults() > 0) define(op.getValue(), op.getTensor().str());
    }
    if (!names.empty()) entry[field] = std::move(names);
  }

  std::string resultName(moe::NodeOp node, mlir::Value result) {
    if (const auto leaves = names_.find(result); leaves != names_.end()) return leaves->second;
    std::string own = moe::tensorName(result).str();
    if (!own.empty()) return own;
    const std::string stem = node.getNode().str();
    std::string name;
    for (int number = 0; name.empty() || reserved_.contains(name); ++number) {
      const std::string ending = fmt::format("_{}", number);
      name = stem.substr(0, kMaxName - ending.size()) + ending;
    }
    reserved_.insert(name);
    return name;
  }

  // `value` is the tensor of this name, which gets into the table when it is new.
  void define(mlir::Value value, const std::string& name) {
    names_[value] = name;
    if (value.use_empty()) unread_.emplace(name, value.getDefiningOp());
    if (!value.use_empty()) read_.insert(name);
    if (!tensors_.contains(name)) tensors_[name] = typeJson(value.getType());
  }

  Json nodeJson(moe::NodeOp op) {
    const std::string word = op->getName().stripDialect().str(), name = op.getNode().str();
    Json json{{"name", name}};
    const OpSchema* schema = findOp(word);
    if (schema == nullptr) {
      fail(op, fmt::format("node '{}' is a {}, which graph files do not have", name, word));
      return json;
    }
    json["op"] = word;
    addAttributes(op, json);
    json["inputs"] = portsJson(schema->inputs, moe::collectOperands(op));
    json["outputs"] = portsJson(schema->outputs, moe::collectResults(op));
    if (const moe::SplitAttr split = op.getSplitAttr())
      json["split"] = {{"space", moe::stringifySplitSpace(split.getSpace()).str()},
                       {"size", split.getSize()}};
    return json;
  }

  static void addAttributes(moe::NodeOp op, Json& json) {
    if (const auto kind = op->getAttrOfType<moe::ActivationKindAttr>("kind"))
      json["kind"] = text::word(kind.getValue());
    if (const auto limit = op->getAttrOfType<mlir::FloatAttr>("limit"))
      json["limit"] = limit.getValueAsDouble();
    for (const char* flag : kFlagFields)
      if (op->hasAttr(flag)) json[flag] = true;
    if (const auto alpha = op->getAttrOfType<mlir::FloatAttr>("alpha"))
      json["alpha"] = alpha.getValueAsDouble();
    for (const char* field : kRoundingFields)
      if (const auto rounding = op->getAttrOfType<moe::RoundingAttr>(field))
        json[field] = text::word(rounding.getValue());
  }

  Json portsJson(std::span<const OpPort> ports, llvm::ArrayRef<mlir::Value> values) {
    Json json = Json::object();
    for (size_t i = 0; i < ports.size() && i < values.size(); ++i)
      if (values[i]) json[std::string(ports[i].name)] = names_.lookup(values[i]);
    return json;
  }

  static constexpr size_t kMaxName = 64;

  moe::GraphOp graph_;
  const std::string& file_;
  std::optional<Error> error_;
  Json tensors_ = Json::object();
  std::set<std::string> reserved_;  // names of tensors
  std::set<std::string> read_;      // likewise, of those that something reads in some entry
  std::map<std::string, mlir::Operation*> unread_;
  llvm::DenseMap<mlir::Value, std::string> names_;
};

// One line per member, as graph files are written by hand: of the file, of its symbols and tensors, of its
// entries and of their nodes, which are at these indents.
std::string printLines(const Json& json, int indent = 0) {
  const auto isLong = [&](const std::string& key) {
    if (indent == 0) return key == "entries" || key == "symbols" || key == "tensors";
    return indent == 2 ? json.is_array() : indent == 4 && key == "nodes";
  };
  const std::string margin(static_cast<size_t>(indent), ' ');
  std::string text;
  for (const auto& item : json.items()) {
    const std::string key = json.is_object() ? Json(item.key()).dump() + ": " : "";
    text += fmt::format("{}\n  {}{}{}", text.empty() ? "" : ",", margin, key,
                        isLong(item.key()) ? printLines(item.value(), indent + 2) : item.value().dump());
  }
  if (!text.empty()) text += "\n" + margin;
  return json.is_object() ? "{" + text + "}" : "[" + text + "]";
}

Expected<std::string> GraphPrinter::run() {
  graph_.walk([&](mlir::Operation* op) { reserveNames(op); });
  Json entries = Json::array();
  for (auto entry : graph_.getOps<moe::EntryOp>()) entries.push_back(entryJson(entry));
  for (const auto& [name, op] : unread_)
    if (!read_.contains(name)) fail(op, fmt::format("tensor '{}' is used by no node and is no output", name));
  if (error_) return *error_;
  Json symbols = Json::object();
  for (const mlir::NamedAttribute& symbol : graph_.getSymbols()) {
    const int64_t value = llvm::cast<mlir::IntegerAttr>(symbol.getValue()).getInt();
    symbols[symbol.getName().str()] = {{"default", value}, {"min", value}, {"max", value}};
  }
  Json limits{{"ranks", graph_.getRanks()}};
  if (graph_.getTp()) limits["tp"] = *graph_.getTp();
  if (graph_.getTokens()) limits["tokens"] = text::word(*graph_.getTokens());
  limits["experts"] = graph_.getExperts() - graph_.getSpare().value_or(0);
  if (graph_.getSpare()) limits["spare"] = *graph_.getSpare();
  limits["top_k"] = graph_.getTopK();
  limits["max_tokens"] = graph_.getMaxTokens();
  const Json file{{"format", 1},         {"name", graph_.getSymName().str()},
                  {"symbols", symbols},  {"limits", limits},
                  {"tensors", tensors_}, {"entries", entries}};
  return printLines(file) + "\n";
}

}  // namespace

Expected<std::string> printGraphJson(moe::GraphOp graph, const std::string& file) {
  return GraphPrinter(graph, file).run();
}

}  // namespace sluice
