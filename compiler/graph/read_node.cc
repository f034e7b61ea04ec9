#include "compiler/graph/read_node.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "compiler/graph/ops.h"
#include "compiler/graph/symbols.h"

namespace sluice {

namespace {

constexpr std::string_view kActivationKinds[] = {"swiglu", "swiglu_clamp", "geglu", "reglu"};

int64_t readInteger(ErrorSink& errors, const JsonValue& value, std::string_view what, int64_t max) {
  if (!expectKind(errors, value, JsonKind::kInteger, what)) return 0;
  if (value.integer < 0 || value.integer > max) {
    errors.fail(value.pos, fmt::format("{} is {}, expected 0 to {}", what, value.integer, max));
  }
  return value.integer;
}

// Whether the value makes sense is for the verifier of the node.
std::optional<double> readNumber(ErrorSink& errors, Fields& node, std::string_view name) {
  const JsonValue* value = node.findAny(name);
  if (value == nullptr) return std::nullopt;
  if (value->kind == JsonKind::kInteger) return static_cast<double>(value->integer);
  double number = 0;
  const char* end = value->text.data() + value->text.size();
  if (value->kind == JsonKind::kReal && std::from_chars(value->text.data(), end, number).ptr == end)
    return number;
  errors.fail(value->pos, fmt::format("the {} of {} is {}, expected a number", name, node.what(),
                                      jsonKindName(value->kind)));
  return std::nullopt;
}

std::string portNames(std::span<const OpPort> ports) {
  std::string names;
  for (const OpPort& port : ports) {
    if (!names.empty()) names += ", ";
    names += port.name;
    if (!port.required) names += " (optional)";
  }
  return names;
}

// Tensors by port, in the order of `ports`.
std::vector<TensorUse> readPorts(ErrorSink& errors, const Graph& graph, const JsonValue& object,
                                 std::span<const OpPort> ports, const std::string& what) {
  std::vector<TensorUse> uses;
  for (const OpPort& port : ports) {
    TensorUse& use = uses.emplace_back();
    const auto it = std::ranges::find(object.items, port.name, &JsonValue::key);
    if (it == object.items.end()) {
      if (!port.required) continue;
      errors.fail(object.pos, fmt::format("{} lack '{}', expected {}", what, port.name, portNames(ports)));
      continue;
    }
    use = readTensorUse(errors, graph, *it, fmt::format("'{}' of the {}", port.name, what));
    if (!use.tensor || graph.at(use.tensor).routing == port.routing) continue;
    errors.fail(use.pos, fmt::format("'{}' of the {} is '{}', which is {}, expected {}", port.name, what,
                                     graph.at(use.tensor).name, port.routing ? "a tensor" : "a routing",
                                     port.routing ? "a routing" : "a tensor"));
  }
  for (const JsonValue& item : object.items) {
    if (std::ranges::find(ports, item.key, &OpPort::name) != ports.end()) continue;
    errors.fail(item.keyPos,
                fmt::format("unknown '{}' in the {}, expected {}", item.key, what, portNames(ports)));
  }
  return uses;
}

std::optional<GraphSplit> readSplit(ErrorSink& errors, const Graph& graph, Fields& node) {
  const JsonValue* value = node.find("split", JsonKind::kObject);
  if (value == nullptr) return std::nullopt;
  Fields fields(errors, *value, "the split of " + node.what());
  GraphSplit split;
  const JsonValue& space = fields.require("space", JsonKind::kString);
  if (space.text == "tokens") {
    split.space = GraphSpace::kTokens;
  } else if (space.text == "experts") {
    split.space = GraphSpace::kExperts;
  } else if (space.text != "rows") {
    errors.fail(space.pos, fmt::format("{} has space '{}', expected tokens, rows or experts", fields.what(),
                                       space.text));
  }
  if (const JsonValue* size = fields.findAny("size")) {
    split.size = readSize(errors, graph, *size, "the size of " + fields.what(), 0, kMaxTokens);
  }
  fields.finish();
  return split;
}

ReferencePlan::Slots readSlots(ErrorSink& errors, Fields& fields, std::string_view name) {
  ReferencePlan::Slots slots;
  const JsonValue* value = fields.find(name, JsonKind::kObject);
  if (value == nullptr) return slots;
  for (const JsonValue& item : value->items) {
    const std::string what = fmt::format("slot '{}' of {}", item.key, fields.what());
    checkName(errors, item.keyPos, "slot", item.key);
    slots.emplace_back(item.key, readInteger(errors, item, what, std::numeric_limits<int32_t>::max()));
  }
  return slots;
}

ReferenceSplit readReferenceSplit(ErrorSink& errors, const JsonValue& value, const std::string& what) {
  Fields fields(errors, value, "the split of " + what);
  ReferenceSplit split;
  split.rows = readInteger(errors, fields.require("rows", JsonKind::kInteger), "'rows' of " + fields.what(),
                           kMaxTokens);
  if (const JsonValue* inputs = fields.find("inputs", JsonKind::kArray)) {
    split.inputs.emplace();
    for (const JsonValue& item : inputs->items) {
      split.inputs->push_back(readInteger(errors, item, "an input of " + fields.what(), 15));
    }
  }
  if (const JsonValue* dim = fields.find("dim", JsonKind::kInteger)) {
    split.dim = readInteger(errors, *dim, "'dim' of " + fields.what(), 2);
  }
  fields.finish();
  return split;
}

std::optional<ReferencePlan> readReference(ErrorSink& errors, Fields& node) {
  const JsonValue* value = node.find("reference", JsonKind::kObject);
  if (value == nullptr) return std::nullopt;
  Fields fields(errors, *value, "the reference of " + node.what());
  ReferencePlan plan;
  if (const JsonValue* core = fields.find("core", JsonKind::kString)) {
    plan.core = core->text;
    if (plan.core != "cube" && plan.core != "vector") {
      errors.fail(core->pos, fmt::format("the core is '{}', expected cube or vector", plan.core));
    }
  }
  plan.inputs = readSlots(errors, fields, "inputs");
  plan.outputs = readSlots(errors, fields, "outputs");
  if (const JsonValue* tiling = fields.find("tiling", JsonKind::kInteger)) {
    plan.tiling = readInteger(errors, *tiling, "the tiling slot", std::numeric_limits<int32_t>::max());
  }
  if (const JsonValue* split = fields.find("split", JsonKind::kObject)) {
    plan.split = readReferenceSplit(errors, *split, fields.what());
  }
  plan.after = fields.optionalName("after");
  fields.finish();
  return plan;
}

}  // namespace

int64_t readSize(ErrorSink& errors, const Graph& graph, const JsonValue& value, std::string_view what,
                 int64_t min, int64_t max) {
  int64_t size = value.integer;
  std::string text;
  if (value.kind == JsonKind::kString) {
    text = fmt::format(" ('{}')", value.text);
    const Expected<int64_t> result = evaluateSize(value.text, graph.symbols);
    if (!result) {
      errors.fail(value.pos, fmt::format("{}{}: {}", what, text, result.error().message));
      return min;
    }
    size = *result;
  } else if (value.kind != JsonKind::kInteger) {
    errors.fail(value.pos, fmt::format("{} is {}, expected a whole number or a string such as \"2*hidden\"",
                                       what, jsonKindName(value.kind)));
    return min;
  }
  if (size >= min && size <= max) return size;
  errors.fail(value.pos, fmt::format("{}{} is {}, expected {} to {}", what, text, size, min, max));
  return min;
}

TensorUse readTensorUse(ErrorSink& errors, const Graph& graph, const JsonValue& value,
                        std::string_view what) {
  if (!expectKind(errors, value, JsonKind::kString, what)) return {};
  const auto it = std::ranges::find(graph.tensors, value.text, &GraphTensor::name);
  if (it != graph.tensors.end()) {
    return {TensorId{static_cast<uint32_t>(it - graph.tensors.begin())}, value.pos};
  }
  errors.fail(value.pos,
              fmt::format("{} is '{}', but there is no such tensor in \"tensors\"", what, value.text));
  return {};
}

GraphNode readNode(ErrorSink& errors, const Graph& graph, const JsonValue& value) {
  const auto name = std::ranges::find(value.items, "name", &JsonValue::key);
  const bool named = name != value.items.end() && name->kind == JsonKind::kString;
  Fields fields(errors, value, named ? fmt::format("node '{}'", name->text) : "a node");
  GraphNode node;
  node.pos = value.pos;
  node.name = fields.name("name");
  node.alias = fields.optionalName("alias");
  fields.find("doc", JsonKind::kString);
  const JsonValue& op = fields.require("op", JsonKind::kString);
  const OpSchema* schema = findOp(op.text);
  if (schema == nullptr) {
    errors.fail(op.pos,
                fmt::format("{} has an unknown op '{}', expected {}", fields.what(), op.text, opNames()));
    return node;
  }
  node.op = schema->op;
  node.inputs = readPorts(errors, graph, fields.require("inputs", JsonKind::kObject), schema->inputs,
                          "inputs of " + fields.what());
  node.outputs = readPorts(errors, graph, fields.require("outputs", JsonKind::kObject), schema->outputs,
                           "outputs of " + fields.what());
  if (schema->hasTranspose) {
    const JsonValue* transpose = fields.find("transpose", JsonKind::kBool);
    node.transpose = transpose != nullptr && transpose->boolean;
  }
  if (schema->hasAccumulate) {
    const JsonValue* accumulate = fields.find("accumulate", JsonKind::kBool);
    node.accumulate = accumulate != nullptr && accumulate->boolean;
  }
  if (schema->hasKind) {
    const JsonValue& kind = fields.require("kind", JsonKind::kString);
    node.kind = kind.text;
    if (std::ranges::find(kActivationKinds, node.kind) == std::end(kActivationKinds)) {
      errors.fail(kind.pos, fmt::format("{} has kind '{}', expected {}", fields.what(), node.kind,
                                        fmt::join(kActivationKinds, ", ")));
    }
    node.limit = readNumber(errors, fields, "limit");
  }
  if (schema->alpha != AlphaField::kNone) node.alpha = readNumber(errors, fields, "alpha");
  if (schema->alpha == AlphaField::kRequired && !node.alpha)
    errors.fail(node.pos, fmt::format("{} has no field 'alpha'", fields.what()));
  node.split = readSplit(errors, graph, fields);
  node.reference = readReference(errors, fields);
  fields.finish();
  return node;
}

}  // namespace sluice
