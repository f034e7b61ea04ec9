#include "compiler/graph/read_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "compiler/dialect/moe.h"
#include "compiler/graph/ops.h"
#include "runtime/program/op_table.h"

namespace sluice {

namespace {

constexpr std::string_view kGradient = "_grad";

const JsonValue* findMember(const JsonValue& object, std::string_view key) {
  const auto it = std::ranges::find(object.items, key, &JsonValue::key);
  return it == object.items.end() ? nullptr : &*it;
}

// The strings in an array or object; the reader of the field reports values that are not strings.
std::vector<const JsonValue*> stringsIn(const JsonValue& value, std::string_view field) {
  std::vector<const JsonValue*> strings;
  if (const JsonValue* list = findMember(value, field))
    for (const JsonValue& item : list->items)
      if (item.kind == JsonKind::kString) strings.push_back(&item);
  return strings;
}

// The verifier of the node checks whether the value makes sense.
std::optional<double> readNumber(Fields& node, std::string_view name) {
  const JsonValue* value = node.findAny(name);
  if (value == nullptr) return std::nullopt;
  if (value->kind == JsonKind::kInteger) return static_cast<double>(value->integer);
  double number = 0;
  const char* end = value->text.data() + value->text.size();
  if (value->kind == JsonKind::kReal && std::from_chars(value->text.data(), end, number).ptr == end)
    return number;
  node.fail(value->pos, fmt::format("the {} of {} is {}, expected a number", name, node.what(),
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

class EntryReader {
 public:
  EntryReader(Reading& reading, const JsonValue& entry)
      : r_(reading),
        json_(entry),
        name_(readNodeName(entry)),
        fields_(r_.errors, entry, name_.empty() ? "an entry" : fmt::format("entry '{}'", name_)) {}

  // 1. Find what defines each tensor of the entry. 2. Order the nodes. 3. Make the ops of sources, nodes and
  // sinks; tensors are found by name.
  void run() {
    fields_.name("name");
    const std::string after = fields_.optionalName("after");
    fields_.find("doc", JsonKind::kString);
    const JsonValue *inputs = fields_.find("inputs", JsonKind::kArray),
                    *saved = fields_.find("saved", JsonKind::kArray),
                    &nodes = fields_.require("nodes", JsonKind::kArray),
                    *save = fields_.find("save", JsonKind::kArray),
                    *outputs = fields_.find("outputs", JsonKind::kArray);
    fields_.finish();
    if (nodes.items.empty() || nodes.items.size() > kMaxGraphNodes)
      return r_.errors.fail(nodes.pos, fmt::format("{} has {} nodes, expected 1 to {}", fields_.what(),
                                                   nodes.items.size(), kMaxGraphNodes));
    defineTensors(nodes);
    const std::vector<size_t> order = sortNodes(nodes);
    if (r_.errors.first()) return;
    const mlir::OpBuilder::InsertionGuard guard(r_.builder);
    auto op = r_.builder.create<moe::EntryOp>(
        r_.at(json_.pos), r_.builder.getStringAttr(name_),
        after.empty() ? mlir::FlatSymbolRefAttr()
                      : mlir::FlatSymbolRefAttr::get(r_.builder.getContext(), after));
    r_.builder.setInsertionPointToEnd(&op.getBody().emplaceBlock());
    if (inputs != nullptr) readInputs(*inputs);
    if (saved != nullptr) readSaved(*saved);
    for (const size_t i : order) readNode(nodes.items[i]);
    if (outputs != nullptr) readSinks<moe::OutputOp>(*outputs, "outputs");
    if (save != nullptr) readSinks<moe::SaveOp>(*save, "save");
  }

 private:
  struct Definition {
    std::string what;  // "produced by node 'route'", "an input of entry 'forward'"
    SourcePos pos;
    std::optional<size_t> node = {};
  };

  // The "name" in the file; the name of a word symbol, also before "_grad", stands for its word. Empty if it
  // is absent.
  std::string readNodeName(const JsonValue& value) const {
    const JsonValue* name = findMember(value, "name");
    if (name == nullptr || name->kind != JsonKind::kString) return {};
    const std::string_view text = name->text, end = text.ends_with(kGradient) ? kGradient : "";
    const GraphSymbol* word = findWord(r_.symbols, text.substr(0, text.size() - end.size()));
    return word != nullptr ? word->word() + std::string(end) : name->text;
  }

  void defineTensors(const JsonValue& nodes) {
    for (const JsonValue* input : stringsIn(json_, "inputs"))
      define(*input, {fmt::format("an input of {}", fields_.what()), input->pos});
    for (const JsonValue* saved : stringsIn(json_, "saved"))
      define(*saved, {"saved by an earlier entry", saved->pos});
    for (size_t i = 0; i < nodes.items.size(); ++i)
      for (const JsonValue* output : stringsIn(nodes.items[i], "outputs"))
        define(*output,
               {fmt::format("produced by node '{}'", readNodeName(nodes.items[i])), nodes.items[i].pos, i});
  }

  void define(const JsonValue& tensor, const Definition& definition) {
    const auto [it, isNew] = definitions_.emplace(tensor.text, definition);
    if (isNew) return;
    r_.errors.fail(tensor.pos, fmt::format("tensor '{}' is {}, but is already {} (line {})", tensor.text,
                                           definition.what, it->second.what, it->second.pos.line));
  }

  // Kahn's algorithm, always taking the first ready node of the file.
  std::vector<size_t> sortNodes(const JsonValue& nodes) {
    std::vector<std::set<size_t>> needs(nodes.items.size());
    for (size_t i = 0; i < needs.size(); ++i)
      for (const JsonValue* input : stringsIn(nodes.items[i], "inputs"))
        if (const auto it = definitions_.find(input->text); it != definitions_.end() && it->second.node)
          needs[i].insert(*it->second.node);
    std::vector<size_t> sorted;
    std::vector<bool> done(needs.size());
    const auto isReady = [&](size_t i) {
      return !done[i] && std::ranges::all_of(needs[i], [&](size_t need) { return done[need]; });
    };
    while (sorted.size() < needs.size()) {
      size_t next = 0;
      while (next < needs.size() && !isReady(next)) ++next;
      if (next == needs.size()) return failCycle(nodes, needs, done);
      done[next] = true;
      sorted.push_back(next);
    }
    return sorted;
  }

  // Every node left needs another one left: walking back from any of them ends in a cycle.
  std::vector<size_t> failCycle(const JsonValue& nodes, const std::vector<std::set<size_t>>& needs,
                                const std::vector<bool>& done) {
    const auto isLeft = [&](size_t i) { return !done[i]; };
    std::vector<size_t> path = {static_cast<size_t>(std::ranges::find(done, false) - done.begin())};
    for (;;) {
      const size_t next = *std::ranges::find_if(needs[path.back()], isLeft);
      const auto seen = std::ranges::find(path, next);
      if (seen != path.end()) {
        path.erase(path.begin(), seen);
        break;
      }
      path.push_back(next);
    }
    // Starts at the first node of the file, in the direction of the data.
    std::ranges::rotate(path, std::ranges::min_element(path));
    std::reverse(path.begin() + 1, path.end());
    path.push_back(path.front());
    std::string text;
    for (size_t i : path)
      text += fmt::format("{}'{}'", text.empty() ? "" : " -> ", readNodeName(nodes.items[i]));
    r_.errors.fail(nodes.items[path.front()].pos, "nodes form a cycle: " + text);
    return {};
  }

  // The tensor of this name in "tensors". If there is none, reports it and returns null.
  const Reading::Tensor* readTensor(const JsonValue& value, std::string_view what) {
    if (!expectKind(r_.errors, value, JsonKind::kString, what)) return nullptr;
    if (const auto it = r_.tensors.find(value.text); it != r_.tensors.end()) return &it->second;
    r_.errors.fail(value.pos,
                   fmt::format("{} is '{}', but there is no such tensor in \"tensors\"", what, value.text));
    return nullptr;
  }

  bool isAbsent(const JsonValue& use) const {
    const auto it = r_.tensors.find(use.text);
    return it != r_.tensors.end() && it->second.absent;
  }

  // As readTensor(), for a list of sources or sinks; only saved ones may be a routing.
  const Reading::Tensor* listed(const JsonValue& item, std::string_view list) {
    const Reading::Tensor* tensor =
        readTensor(item, fmt::format("an item of '{}' of {}", list, fields_.what()));
    if (tensor == nullptr || list.starts_with("save") || !llvm::isa<moe::RoutingType>(tensor->type))
      return tensor;
    r_.errors.fail(item.pos, fmt::format("'{}' is a routing, which cannot be in '{}' of {}", item.text, list,
                                         fields_.what()));
    return nullptr;
  }

  // The part of a tensor that a rank has; null if the ranks have no parts.
  moe::ShardingAttr findSharding(const Reading::Tensor& tensor) {
    auto graph = llvm::cast<moe::GraphOp>(r_.builder.getBlock()->getParentOp()->getParentOp());
    if (graph.getMesh().tp == 1 || !tensor.sharding) return nullptr;
    return moe::ShardingAttr::get(r_.builder.getContext(), *tensor.sharding);
  }

  void readInputs(const JsonValue& list) {
    for (const JsonValue& item : list.items) {
      const Reading::Tensor* tensor = listed(item, "inputs");
      if (tensor == nullptr) continue;
      if (tensor->absent) {
        r_.used.insert(item.text);
        continue;
      }
      r_.tensors[item.text].mayBePart = true;
      values_[item.text] = r_.builder.create<moe::InputOp>(
          r_.at(item.pos), tensor->type, r_.builder.getStringAttr(item.text), findSharding(*tensor));
    }
  }

  void readSaved(const JsonValue& list) {
    for (const JsonValue& item : list.items)
      if (const Reading::Tensor* tensor = listed(item, "saved"))
        values_[item.text] = r_.builder.create<moe::SavedOp>(r_.at(item.pos), tensor->type,
                                                             r_.builder.getStringAttr(item.text));
  }

  template <class Op>
  void readSinks(const JsonValue& list, std::string_view name) {
    for (const JsonValue& item : list.items) {
      const Reading::Tensor* tensor = listed(item, name);
      if (tensor == nullptr) continue;
      r_.used.insert(item.text);
      if (const auto value = values_.find(item.text); value != values_.end())
        createSink<Op>(item, *tensor, value->second);
      else
        r_.errors.fail(item.pos,
                       fmt::format("tensor '{}' is not produced by a node of {}", item.text, fields_.what()));
    }
  }

  template <class Op>
  void createSink(const JsonValue& item, const Reading::Tensor& tensor, mlir::Value value) {
    const mlir::StringAttr name = r_.builder.getStringAttr(item.text);
    if constexpr (std::is_same_v<Op, moe::OutputOp>) {
      const auto type = llvm::dyn_cast<moe::MoeTensorType>(tensor.type);
      if (type && type.hasRows()) r_.tensors[item.text].mayBePart = true;
      r_.builder.create<Op>(r_.at(item.pos), name, value, findSharding(tensor));
    } else {
      r_.builder.create<Op>(r_.at(item.pos), name, value);
    }
  }

  // Calls `visit` with each tensor by port, in the order of `ports`, or with null for an absent optional one.
  template <class Visit>
  void readPorts(const JsonValue& object, std::span<const OpPort> ports, const std::string& what,
                 Visit visit) {
    for (const OpPort& port : ports) {
      const JsonValue* value = findMember(object, port.name);
      if (value != nullptr && isAbsent(*value)) value = nullptr;
      if (value == nullptr && port.required)
        r_.errors.fail(object.pos,
                       fmt::format("{} lack '{}', expected {}", what, port.name, portNames(ports)));
      const Reading::Tensor* tensor = nullptr;
      if (value != nullptr) tensor = readTensor(*value, fmt::format("'{}' of the {}", port.name, what));
      if (tensor != nullptr && llvm::isa<moe::RoutingType>(tensor->type) != port.routing)
        r_.errors.fail(value->pos, fmt::format("'{}' of the {} is '{}', which is {}, expected {}", port.name,
                                               what, value->text, port.routing ? "a tensor" : "a routing",
                                               port.routing ? "a routing" : "a tensor"));
      visit(port, value, tensor);
    }
    for (const JsonValue& item : object.items) {
      if (std::ranges::find(ports, item.key, &OpPort::name) != ports.end()) continue;
      r_.errors.fail(item.keyPos,
                     fmt::format("unknown '{}' in the {}, expected {}", item.key, what, portNames(ports)));
    }
  }

  void readNode(const JsonValue& value) {
    const std::string name = readNodeName(value);
    Fields fields(r_.errors, value, name.empty() ? "a node" : fmt::format("node '{}'", name));
    fields.name("name");
    fields.find("doc", JsonKind::kString);
    const JsonValue& op = fields.require("op", JsonKind::kString);
    const OpSchema* schema = findOp(op.text);
    if (schema == nullptr)
      return r_.errors.fail(
          op.pos, fmt::format("{} has an unknown op '{}', expected {}", fields.what(), op.text, opNames()));
    mlir::OperationState state(r_.at(value.pos), "moe." + op.text);
    state.addAttribute("node", r_.builder.getStringAttr(name));
    readOperands(fields, *schema, name, state);
    const std::vector<std::string> results = readResults(fields, *schema, state);
    readAttributes(fields, value, state);
    readSplit(fields, state);
    fields.finish();
    if (r_.errors.first()) return;
    mlir::Operation* made = r_.builder.create(state);
    for (size_t i = 0; i < results.size(); ++i)
      values_[results[i]] = made->getResult(static_cast<unsigned>(i));
  }

  void readOperands(Fields& fields, const OpSchema& schema, const std::string& node,
                    mlir::OperationState& state) {
    llvm::SmallVector<int32_t> segments;
    const auto visit = [&](const OpPort&, const JsonValue* use, const Reading::Tensor* tensor) {
      segments.push_back(tensor != nullptr ? 1 : 0);
      if (tensor == nullptr) return;
      r_.used.insert(use->text);
      if (const auto known = values_.find(use->text); known != values_.end())
        return state.addOperands(known->second);
      r_.errors.fail(use->pos,
                     fmt::format("node '{}' uses tensor '{}', which is not produced in {} and is neither an "
                                 "input nor saved",
                                 node, use->text, fields_.what()));
    };
    readPorts(fields.require("inputs", JsonKind::kObject), schema.inputs, "inputs of " + fields.what(),
              visit);
    // A single optional operand is the last one; with several, the op needs to know which are present.
    if (std::ranges::count(schema.inputs, false, &OpPort::required) > 1)
      state.addAttribute("operandSegmentSizes", r_.builder.getDenseI32ArrayAttr(segments));
  }

  std::vector<std::string> readResults(Fields& fields, const OpSchema& schema, mlir::OperationState& state) {
    std::vector<std::string> names;
    const auto visit = [&](const OpPort& port, const JsonValue* use, const Reading::Tensor* tensor) {
      if (tensor == nullptr) return;
      state.addTypes(tensor->type);
      names.push_back(use->text);
      if (!port.givenBy.empty()) state.addAttribute(port.givenBy, r_.builder.getUnitAttr());
    };
    readPorts(fields.require("outputs", JsonKind::kObject), schema.outputs, "outputs of " + fields.what(),
              visit);
    const llvm::SmallVector<llvm::StringRef> words(names.begin(), names.end());
    state.addAttribute("tensors", r_.builder.getStrArrayAttr(words));
    return names;
  }

  // Reads the fields of the attributes that the op has.
  void readAttributes(Fields& fields, const JsonValue& node, mlir::OperationState& state) {
    const auto has = [&](llvm::StringRef name) {
      return llvm::is_contained(state.name.getAttributeNames(), r_.builder.getStringAttr(name));
    };
    const auto addNumber = [&](llvm::StringRef name, std::optional<double> number) {
      if (number) state.addAttribute(name, r_.builder.getF32FloatAttr(static_cast<float>(*number)));
    };
    for (const char* name : kFlagFields) {
      const JsonValue* flag = has(name) ? fields.find(name, JsonKind::kBool) : nullptr;
      if (flag != nullptr && flag->boolean) state.addAttribute(name, r_.builder.getUnitAttr());
    }
    if (has("kind")) {
      const bool isSymbol = findWord(r_.symbols, fields.require("kind", JsonKind::kString).text) != nullptr;
      const std::optional<ActivationKind> kind = readEnum<ActivationKind>(r_, fields, "kind");
      if (!kind) return;
      state.addAttribute("kind", moe::ActivationKindAttr::get(r_.builder.getContext(), *kind));
      const std::optional<double> limit = readNumber(fields, "limit");
      // If the kind is a symbol, the limit applies to the kind that has one.
      if (!isSymbol || findInfo(*kind).hasLimit) addNumber("limit", limit);
    }
    if (has("alpha")) addNumber("alpha", readNumber(fields, "alpha"));
    for (const char* name : kRoundingFields)
      if (const auto rounding = has(name) ? readEnum<Rounding>(r_, fields, name) : std::nullopt)
        state.addAttribute(name, moe::RoundingAttr::get(r_.builder.getContext(), *rounding));
    if (state.name.getStringRef() == moe::ScaleOp::getOperationName() && findMember(node, "alpha") == nullptr)
      fields.fail(node.pos, fmt::format("{} has no field 'alpha'", fields.what()));
  }

  void readSplit(Fields& node, mlir::OperationState& state) {
    const JsonValue* value = node.find("split", JsonKind::kObject);
    if (value == nullptr) return;
    Fields fields(r_.errors, *value, "the split of " + node.what());
    const JsonValue& word = fields.require("space", JsonKind::kString);
    const std::optional<moe::SplitSpace> space = moe::symbolizeSplitSpace(word.text);
    if (!space)
      return fields.fail(word.pos, fmt::format("{} has space '{}', expected tokens, rows or experts",
                                               fields.what(), word.text));
    int64_t size = 0;
    if (const JsonValue* json = fields.findAny("size"))
      size = readSize(r_, *json, "the size of " + fields.what(), 0,
                      *space == moe::SplitSpace::experts ? 1 : kMaxTokens);
    fields.finish();
    state.addAttribute("split", moe::SplitAttr::get(r_.builder.getContext(), *space, size));
  }

  Reading& r_;
  const JsonValue& json_;
  const std::string name_;
  Fields fields_;
  std::map<std::string, Definition> definitions_;
  std::map<std::string, mlir::Value> values_;
};

}  // namespace

int64_t readSize(Reading& reading, const JsonValue& value, std::string_view what, int64_t min, int64_t max) {
  int64_t size = value.integer;
  std::string text;
  if (value.kind == JsonKind::kString) {
    text = fmt::format(" ('{}')", value.text);
    const Expected<int64_t> result = evaluateSize(value.text, reading.symbols);
    if (!result) {
      reading.errors.fail(value.pos, fmt::format("{}{}: {}", what, text, result.error().message));
      return min;
    }
    size = *result;
  } else if (value.kind != JsonKind::kInteger) {
    reading.errors.fail(
        value.pos, fmt::format("{} is {}, expected a whole number or a string such as \"2*hidden\"", what,
                               jsonKindName(value.kind)));
    return min;
  }
  if (size >= min && size <= max) return size;
  reading.errors.fail(value.pos, fmt::format("{}{} is {}, expected {} to {}", what, text, size, min, max));
  return min;
}

void readEntry(Reading& reading, const JsonValue& value) { EntryReader(reading, value).run(); }

}  // namespace sluice
