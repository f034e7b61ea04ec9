#include "compiler/graph/read_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "compiler/graph/check_graph.h"
#include "compiler/graph/fields.h"
#include "compiler/graph/json_tree.h"
#include "compiler/graph/read_node.h"
#include "compiler/graph/symbols.h"
#include "runtime/base/one_line.h"

namespace sluice {

namespace {

class GraphReader {
 public:
  GraphReader(std::string_view file, SymbolSets sets) : errors_(file), sets_(sets) { graph_.file = file; }

  Expected<Graph> read(const JsonValue& root) {
    graph_.pos = root.pos;
    Fields fields(errors_, root, "the graph");
    const JsonValue& format = fields.require("format", JsonKind::kInteger);
    if (format.integer != 1)
      errors_.fail(format.pos, fmt::format("format is {}, expected 1", format.integer));
    graph_.name = fields.name("name");
    fields.find("doc", JsonKind::kString);
    readSymbols(fields.require("symbols", JsonKind::kObject));
    if (errors_.first()) return *errors_.first();
    if (const Status set = setSymbols(graph_.symbols, sets_); !set) {
      return Error{messageLines(fmt::format("{}: error: {}", graph_.file, set.error().message))};
    }
    readLimits(fields.require("limits", JsonKind::kObject));
    readTensors(fields.require("tensors", JsonKind::kObject));
    readEntries(fields.require("entries", JsonKind::kArray));
    fields.finish();
    if (!errors_.first()) checkGraph(graph_, errors_);
    if (errors_.first()) return *errors_.first();
    return std::move(graph_);
  }

 private:
  void readSymbols(const JsonValue& object) {
    for (const JsonValue& item : object.items) {
      GraphSymbol symbol;
      symbol.name = item.key;
      checkName(errors_, item.keyPos, "a symbol", symbol.name);
      if (symbol.name == "T" || symbol.name == "R" || symbol.name == "E") {
        errors_.fail(item.keyPos, fmt::format("symbol '{}' has the name of a run-time extent", symbol.name));
      }
      Fields fields(errors_, item, fmt::format("symbol '{}'", symbol.name));
      symbol.initial = fields.require("default", JsonKind::kInteger).integer;
      symbol.min = fields.require("min", JsonKind::kInteger).integer;
      symbol.max = fields.require("max", JsonKind::kInteger).integer;
      symbol.doc = fields.optionalString("doc");
      symbol.value = symbol.initial;
      fields.finish();
      if (symbol.initial < symbol.min || symbol.initial > symbol.max) {
        errors_.fail(item.pos, fmt::format("the default of symbol '{}' is {}, expected {} to {}", symbol.name,
                                           symbol.initial, symbol.min, symbol.max));
      }
      graph_.symbols.push_back(std::move(symbol));
    }
  }

  int64_t readLimit(Fields& fields, std::string_view name, int64_t max) {
    const JsonValue* value = fields.findAny(name);
    if (value != nullptr) return readSize(errors_, graph_, *value, fmt::format("limit '{}'", name), 1, max);
    fields.require(name, JsonKind::kInteger);
    return 1;
  }

  void readLimits(const JsonValue& object) {
    Fields fields(errors_, object, "the limits");
    graph_.ranks = readLimit(fields, "ranks", kMaxRanks);
    graph_.experts = readLimit(fields, "experts", kMaxExperts);
    graph_.topK = readLimit(fields, "top_k", kMaxTopK);
    graph_.maxTokens = readLimit(fields, "max_tokens", kMaxTokens);
    fields.finish();
    if (graph_.topK > graph_.experts) {
      errors_.fail(object.pos,
                   fmt::format("top_k is {}, but there are only {} experts", graph_.topK, graph_.experts));
    }
  }

  void readTensors(const JsonValue& object) {
    for (const JsonValue& item : object.items) {
      GraphTensor tensor;
      tensor.name = item.key;
      tensor.pos = item.keyPos;
      checkName(errors_, item.keyPos, "a tensor", tensor.name);
      Fields fields(errors_, item, fmt::format("tensor '{}'", tensor.name));
      tensor.alias = fields.optionalName("alias");
      fields.find("doc", JsonKind::kString);
      readType(fields, tensor);
      fields.finish();
      graph_.tensors.push_back(std::move(tensor));
    }
  }

  void readType(Fields& fields, GraphTensor& tensor) {
    const JsonValue& value = fields.require("type", JsonKind::kString);
    tensor.routing = value.text == "routing";
    if (tensor.routing) return;
    const std::optional<DType> type = dtypeFromName(value.text);
    if (type != DType::kBF16 && type != DType::kF32 && type != DType::kI32) {
      errors_.fail(value.pos, fmt::format("tensor '{}' has type '{}', expected BF16, F32, I32 or routing",
                                          tensor.name, value.text));
      return;
    }
    tensor.type = *type;
    const JsonValue& shape = fields.require("shape", JsonKind::kArray);
    if (shape.items.empty() || shape.items.size() > 3) {
      errors_.fail(shape.pos, fmt::format("tensor '{}' has {} dimensions, expected 1 to 3", tensor.name,
                                          shape.items.size()));
    }
    for (const JsonValue& dim : shape.items) tensor.shape.push_back(readDim(tensor, dim));
  }

  Dim readDim(const GraphTensor& tensor, const JsonValue& value) {
    const std::string what = fmt::format("dimension {} of tensor '{}'", tensor.shape.size(), tensor.name);
    const bool isExtent = value.text == "T" || value.text == "R" || value.text == "E";
    if (value.kind != JsonKind::kString || !isExtent) {
      if (tensor.shape.empty()) checkQuotient(value, what);
      return {Extent::kFixed, readSize(errors_, graph_, value, what, 1, kMaxDim)};
    }
    if (!tensor.shape.empty()) {
      errors_.fail(value.pos,
                   fmt::format("{} is {}, which only the first dimension may be", what, value.text));
    }
    if (value.text == "E") return expertsOfRank();
    return {value.text == "T" ? Extent::kTokens : Extent::kRows, 0};
  }

  // "experts/ep" is what a graph may have had before its sizes were set like this.
  void checkQuotient(const JsonValue& value, const std::string& what) {
    if (!expertsDiffer() || value.kind != JsonKind::kString || value.text.find('/') == std::string::npos)
      return;
    if (const Expected<int64_t> size = evaluateSize(value.text, graph_.symbols); !size)
      errors_.fail(value.pos, fmt::format("{} ('{}'): {}; the experts of a rank are \"E\"", what, value.text,
                                          size.error().message));
  }

  bool expertsDiffer() const { return graph_.experts % graph_.ranks != 0; }

  // A number wherever all ranks own as many.
  Dim expertsOfRank() const {
    if (expertsDiffer()) return {Extent::kExperts, 0};
    return {Extent::kFixed, graph_.experts / graph_.ranks};
  }

  void readEntries(const JsonValue& array) {
    if (array.items.empty() || array.items.size() > kMaxGraphEntries) {
      errors_.fail(array.pos, fmt::format("the graph has {} entries, expected 1 to {}", array.items.size(),
                                          kMaxGraphEntries));
      return;
    }
    for (const JsonValue& item : array.items) graph_.entries.push_back(readEntry(item));
  }

  GraphEntry readEntry(const JsonValue& value) {
    const auto name = std::ranges::find(value.items, "name", &JsonValue::key);
    const bool named = name != value.items.end() && name->kind == JsonKind::kString;
    Fields fields(errors_, value, named ? fmt::format("entry '{}'", name->text) : "an entry");
    GraphEntry entry;
    entry.pos = value.pos;
    entry.name = fields.name("name");
    entry.after = fields.optionalName("after");
    fields.find("doc", JsonKind::kString);
    entry.inputs = readUses(fields, "inputs");
    entry.saved = readUses(fields, "saved");
    const JsonValue& nodes = fields.require("nodes", JsonKind::kArray);
    if (nodes.items.empty() || nodes.items.size() > kMaxGraphNodes) {
      errors_.fail(nodes.pos, fmt::format("{} has {} nodes, expected 1 to {}", fields.what(),
                                          nodes.items.size(), kMaxGraphNodes));
      return entry;
    }
    for (const JsonValue& node : nodes.items) entry.nodes.push_back(readNode(errors_, graph_, node));
    entry.save = readUses(fields, "save");
    entry.outputs = readUses(fields, "outputs");
    fields.finish();
    return entry;
  }

  // A list of tensors without repetition; absent: empty.
  std::vector<TensorUse> readUses(Fields& fields, std::string_view name) {
    std::vector<TensorUse> uses;
    const JsonValue* array = fields.find(name, JsonKind::kArray);
    if (array == nullptr) return uses;
    if (array->items.size() > kMaxJsonFields) errors_.fail(array->pos, "the list is too long");
    if (errors_.first()) return uses;
    for (const JsonValue& item : array->items) {
      const TensorUse use =
          readTensorUse(errors_, graph_, item, fmt::format("an item of '{}' of {}", name, fields.what()));
      if (!use.tensor) continue;
      const GraphTensor& tensor = graph_.at(use.tensor);
      if (std::ranges::find(uses, use.tensor, &TensorUse::tensor) != uses.end()) {
        errors_.fail(item.pos, fmt::format("tensor '{}' is listed twice in '{}' of {}", tensor.name, name,
                                           fields.what()));
      }
      if (tensor.routing && (name == "inputs" || name == "outputs")) {
        errors_.fail(item.pos, fmt::format("'{}' is a routing, which cannot be in '{}' of {}", tensor.name,
                                           name, fields.what()));
      }
      uses.push_back(use);
    }
    return uses;
  }

  ErrorSink errors_;
  SymbolSets sets_;
  Graph graph_;
};

Expected<std::string> readFile(const std::string& path) {
  const auto cannot = [&] {
    return Error{fmt::format("{}: error: cannot read: {}", path, std::strerror(errno))};
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return cannot();
  std::string text(kMaxGraphBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return cannot();
  if (text.size() <= kMaxGraphBytes) return text;
  return Error{fmt::format("{}: error: longer than {} bytes", path, kMaxGraphBytes)};
}

}  // namespace

Expected<Graph> readGraphText(std::string_view text, std::string_view file, SymbolSets sets) {
  const Expected<JsonValue> root = parseJson(text, file);
  if (!root) return root.error();
  return GraphReader(file, sets).read(*root);
}

Expected<Graph> readGraph(const std::string& path, SymbolSets sets) {
  const Expected<std::string> text = readFile(path);
  if (!text) return text.error();
  return readGraphText(*text, path, sets);
}

}  // namespace sluice
