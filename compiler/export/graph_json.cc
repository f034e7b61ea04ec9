#include "compiler/export/graph_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "compiler/graph/ops.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

Json symbolsJson(const Graph& graph) {
  Json symbols = Json::object();
  for (const GraphSymbol& symbol : graph.symbols) {
    symbols[symbol.name] = {{"default", symbol.value}, {"min", symbol.value}, {"max", symbol.value}};
    if (!symbol.doc.empty()) symbols[symbol.name]["doc"] = symbol.doc;
  }
  return symbols;
}

Json tensorJson(const GraphTensor& tensor) {
  Json json{{"type", tensor.routing ? std::string("routing") : std::string(dtypeName(tensor.type))}};
  if (!tensor.routing) {
    json["shape"] = Json::array();
    for (const Dim& dim : tensor.shape)
      json["shape"].push_back(dim.extent == Extent::kTokens    ? Json("T")
                              : dim.extent == Extent::kRows    ? Json("R")
                              : dim.extent == Extent::kExperts ? Json("E")
                                                               : Json(dim.size));
  }
  if (!tensor.alias.empty()) json["alias"] = tensor.alias;
  return json;
}

Json namesJson(const Graph& graph, const std::vector<TensorUse>& uses) {
  Json names = Json::array();
  for (const TensorUse& use : uses) names.push_back(graph.at(use.tensor).name);
  return names;
}

Json portsJson(const Graph& graph, std::span<const OpPort> ports, const std::vector<TensorUse>& uses) {
  Json json = Json::object();
  for (size_t i = 0; i < ports.size() && i < uses.size(); ++i)
    if (uses[i].tensor) json[std::string(ports[i].name)] = graph.at(uses[i].tensor).name;
  return json;
}

std::string_view spaceName(GraphSpace space) {
  switch (space) {
    case GraphSpace::kTokens:
      return "tokens";
    case GraphSpace::kRows:
      return "rows";
    case GraphSpace::kExperts:
      return "experts";
  }
  return "rows";
}

Json slotsJson(const ReferencePlan::Slots& slots) {
  Json json = Json::object();
  for (const auto& [name, slot] : slots) json[name] = slot;
  return json;
}

Json referenceJson(const ReferencePlan& plan) {
  Json json = Json::object();
  if (!plan.core.empty()) json["core"] = plan.core;
  if (plan.tiling) json["tiling"] = *plan.tiling;
  if (!plan.inputs.empty()) json["inputs"] = slotsJson(plan.inputs);
  if (!plan.outputs.empty()) json["outputs"] = slotsJson(plan.outputs);
  if (plan.split) {
    Json split = Json::object();
    if (plan.split->inputs) split["inputs"] = *plan.split->inputs;
    if (plan.split->dim) split["dim"] = *plan.split->dim;
    split["rows"] = plan.split->rows;
    json["split"] = std::move(split);
  }
  if (!plan.after.empty()) json["after"] = plan.after;
  return json;
}

Json nodeJson(const Graph& graph, const GraphNode& node) {
  const OpSchema& schema = schemaOf(node.op);
  Json json{{"name", node.name}};
  if (!node.alias.empty()) json["alias"] = node.alias;
  json["op"] = schema.name;
  if (!node.kind.empty()) json["kind"] = node.kind;
  if (node.limit) json["limit"] = *node.limit;
  if (node.transpose) json["transpose"] = true;
  if (node.accumulate) json["accumulate"] = true;
  if (node.alpha) json["alpha"] = *node.alpha;
  json["inputs"] = portsJson(graph, schema.inputs, node.inputs);
  json["outputs"] = portsJson(graph, schema.outputs, node.outputs);
  if (node.split) json["split"] = {{"space", spaceName(node.split->space)}, {"size", node.split->size}};
  if (node.reference) json["reference"] = referenceJson(*node.reference);
  return json;
}

Json entryJson(const Graph& graph, const GraphEntry& entry) {
  Json json{{"name", entry.name}};
  if (!entry.after.empty()) json["after"] = entry.after;
  if (!entry.inputs.empty()) json["inputs"] = namesJson(graph, entry.inputs);
  if (!entry.saved.empty()) json["saved"] = namesJson(graph, entry.saved);
  json["nodes"] = Json::array();
  for (const GraphNode& node : entry.nodes) json["nodes"].push_back(nodeJson(graph, node));
  if (!entry.save.empty()) json["save"] = namesJson(graph, entry.save);
  if (!entry.outputs.empty()) json["outputs"] = namesJson(graph, entry.outputs);
  return json;
}

std::string indented(const std::string& text, int spaces) { return std::string(spaces, ' ') + text; }

// One line a member of an object or array, as graph files are written by hand.
std::string linesOf(const Json& json, int indent) {
  std::string text = json.is_object() ? "{" : "[";
  bool first = true;
  for (const auto& item : json.items()) {
    text += first ? "\n" : ",\n";
    first = false;
    const std::string key = json.is_object() ? Json(item.key()).dump() + ": " : "";
    text += indented(key + item.value().dump(), indent + 2);
  }
  return text + (first ? "" : "\n" + std::string(static_cast<size_t>(indent), ' ')) +
         (json.is_object() ? "}" : "]");
}

std::string entryText(const Json& entry) {
  std::string text = "    {";
  bool first = true;
  for (const auto& item : entry.items()) {
    const std::string value = item.key() == "nodes" ? linesOf(item.value(), 6) : item.value().dump();
    text += fmt::format("{}\n      \"{}\": {}", first ? "" : ",", item.key(), value);
    first = false;
  }
  return text + "\n    }";
}

}  // namespace

std::string printGraphJson(const Graph& graph) {
  Json tensors = Json::object();
  for (const GraphTensor& tensor : graph.tensors) tensors[tensor.name] = tensorJson(tensor);
  const Json limits{{"ranks", graph.ranks},
                    {"experts", graph.experts},
                    {"top_k", graph.topK},
                    {"max_tokens", graph.maxTokens}};
  std::string text =
      fmt::format("{{\n  \"format\": 1,\n  \"name\": {},\n  \"symbols\": {},\n  \"limits\": {},\n",
                  Json(graph.name).dump(), linesOf(symbolsJson(graph), 2), limits.dump());
  text += fmt::format("  \"tensors\": {},\n  \"entries\": [", linesOf(tensors, 2));
  bool first = true;
  for (const GraphEntry& entry : graph.entries) {
    text += (first ? "\n" : ",\n") + entryText(entryJson(graph, entry));
    first = false;
  }
  return text + "\n  ]\n}\n";
}

}  // namespace sluice
