#include "compiler/graph/read_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "compiler/dialect/diagnostics.h"
#include "compiler/dialect/element_type.h"
#include "compiler/dialect/moe.h"
#include "compiler/graph/read_node.h"
#include "mlir/IR/Verifier.h"
#include "runtime/base/activation_info.h"
#include "runtime/base/dtype.h"
#include "runtime/base/one_line.h"
#include "runtime/program/program.h"

namespace sluice {

namespace {

constexpr size_t kMaxGraphEntries = 64;
constexpr std::string_view kAllActivations = "activations";

using Module = mlir::OwningOpRef<mlir::ModuleOp>;

bool isExtent(std::string_view text) { return text == "T" || text == "R" || text == "E"; }

class GraphReader {
 public:
  GraphReader(std::string_view file, mlir::MLIRContext& context)
      : errors_(file), r_{std::string(file), errors_, mlir::OpBuilder(&context), {}, {}, {}} {}

  // Errors: from fields or, if there are none, from the dialect.
  Expected<Module> read(const JsonValue& root, SymbolSets sets) {
    const DiagnosticReport report(*r_.builder.getContext(), r_.file);
    Module module(mlir::ModuleOp::create(r_.at(root.pos)));
    r_.builder.setInsertionPointToEnd(module->getBody());
    if (Status status = readRoot(root, sets); !status) return status.error();
    if (errors_.first()) return *errors_.first();
    if (failed(mlir::verify(*module))) return report.error();
    return module;
  }

 private:
  Status readRoot(const JsonValue& root, SymbolSets sets) {
    Fields fields(errors_, root, "the graph");
    const JsonValue& format = fields.require("format", JsonKind::kInteger);
    if (format.integer != 1)
      errors_.fail(format.pos, fmt::format("format is {}, expected 1", format.integer));
    const std::string name = fields.name("name");
    fields.find("doc", JsonKind::kString);
    readSymbols(fields.require("symbols", JsonKind::kObject));
    if (errors_.first()) return {};
    if (const Status set = setSymbols(r_.symbols, sets); !set)
      return Error{messageLines(fmt::format("{}: error: {}", r_.file, set.error().message))};
    createGraph(root, name, fields.require("limits", JsonKind::kObject));
    if (errors_.first()) return {};
    readTensors(fields.require("tensors", JsonKind::kObject));
    const JsonValue& entries = fields.require("entries", JsonKind::kArray);
    fields.finish();
    if (entries.items.empty() || entries.items.size() > kMaxGraphEntries)
      errors_.fail(entries.pos, fmt::format("the graph has {} entries, expected 1 to {}",
                                            entries.items.size(), kMaxGraphEntries));
    for (const JsonValue& entry : entries.items)
      if (!errors_.first()) readEntry(r_, entry);
    checkUses();
    return {};
  }

  void readSymbols(const JsonValue& object) {
    for (const JsonValue& item : object.items) {
      GraphSymbol symbol;
      symbol.name = item.key;
      checkName(errors_, item.keyPos, "a symbol", symbol.name);
      if (isExtent(symbol.name))
        errors_.fail(item.keyPos, fmt::format("symbol '{}' has the name of a run-time extent", symbol.name));
      Fields fields(errors_, item, fmt::format("symbol '{}'", symbol.name));
      if (const JsonValue* words = fields.findAny("one_of"))
        readWords(fields, *words, symbol);
      else
        readRange(fields, symbol);
      symbol.doc = fields.optionalString("doc");
      symbol.value = symbol.initial;
      fields.finish();
      r_.symbols.push_back(std::move(symbol));
    }
  }

  void readRange(Fields& fields, GraphSymbol& symbol) {
    const JsonValue& initial = fields.require("default", JsonKind::kInteger);
    symbol.initial = initial.integer;
    symbol.min = fields.require("min", JsonKind::kInteger).integer;
    symbol.max = fields.require("max", JsonKind::kInteger).integer;
    if (symbol.initial < symbol.min || symbol.initial > symbol.max)
      fields.fail(initial.pos, fmt::format("the default of symbol '{}' is {}, expected {} to {}", symbol.name,
                                           symbol.initial, symbol.min, symbol.max));
  }

  // A list, or "activations" for those that there are.
  void readWords(Fields& fields, const JsonValue& words, GraphSymbol& symbol) {
    if (words.text == kAllActivations)
      symbol.words = text::listWords(ActivationKind{});
    else
      expectKind(errors_, words, JsonKind::kArray, fmt::format("field 'one_of' of {}", fields.what()));
    for (const JsonValue& word : words.items) {
      const std::string what = "a word of " + fields.what();
      if (expectKind(errors_, word, JsonKind::kString, what)) checkName(errors_, word.pos, what, word.text);
      symbol.words.push_back(word.text);
    }
    const JsonValue& initial = fields.require("default", JsonKind::kString);
    const auto at = std::ranges::find(symbol.words, initial.text);
    symbol.initial = at - symbol.words.begin();
    if (at == symbol.words.end())
      fields.fail(initial.pos, fmt::format("the default of symbol '{}' is '{}', which is none of 'one_of'",
                                           symbol.name, initial.text));
  }

  int64_t readLimit(Fields& fields, std::string_view name, int64_t max) {
    const JsonValue* value = fields.findAny(name);
    if (value != nullptr) return readSize(r_, *value, fmt::format("limit '{}'", name), 1, max);
    fields.require(name, JsonKind::kInteger);
    return 1;
  }

  // With an empty block, where the builder is from now on.
  void createGraph(const JsonValue& root, const std::string& name, const JsonValue& limits) {
    Fields fields(errors_, limits, "the limits");
    const int64_t ranks = readLimit(fields, "ranks", kMaxRanks);
    const JsonValue* tp = fields.findAny("tp");
    const int64_t shards = tp == nullptr ? 1 : readSize(r_, *tp, "limit 'tp'", 1, kMaxRanks);
    const std::optional<TokenHolders> holders = readEnum<TokenHolders>(r_, fields, "tokens");
    const int64_t experts = readLimit(fields, "experts", kMaxExperts);
    const JsonValue* spares = fields.findAny("spare");
    const int64_t spare =
        spares == nullptr ? 0 : readSize(r_, *spares, "limit 'spare'", 0, kMaxExperts - experts);
    const int64_t topK = readLimit(fields, "top_k", kMaxTopK);
    const int64_t maxTokens = readLimit(fields, "max_tokens", kMaxTokens);
    fields.finish();
    if (ranks % shards != 0)
      errors_.fail(tp->pos, fmt::format("tp is {}, expected a divisor of {} ranks", shards, ranks));
    if (topK > experts)
      errors_.fail(limits.pos, fmt::format("top_k is {}, but there are only {} experts", topK, experts));
    llvm::SmallVector<mlir::NamedAttribute> values;
    for (const GraphSymbol& symbol : r_.symbols)
      if (symbol.words.empty())
        values.push_back(r_.builder.getNamedAttr(symbol.name, r_.builder.getI64IntegerAttr(symbol.value)));
    if (errors_.first()) return;
    graph_ = r_.builder.create<moe::GraphOp>(
        r_.at(root.pos), r_.builder.getStringAttr(name), r_.builder.getI64IntegerAttr(ranks),
        shards == 1 ? nullptr : r_.builder.getI64IntegerAttr(shards),
        shards == 1 || holders != TokenHolders::kSame
            ? nullptr
            : moe::TokenHoldersAttr::get(r_.builder.getContext(), *holders),
        r_.builder.getI64IntegerAttr(experts + spare),
        spare == 0 ? nullptr : r_.builder.getI64IntegerAttr(spare), r_.builder.getI64IntegerAttr(topK),
        r_.builder.getI64IntegerAttr(maxTokens), r_.builder.getDictionaryAttr(values));
    r_.builder.setInsertionPointToEnd(&graph_.getBody().emplaceBlock());
  }

  void readTensors(const JsonValue& object) {
    for (const JsonValue& item : object.items) {
      checkName(errors_, item.keyPos, "a tensor", item.key);
      Fields fields(errors_, item, fmt::format("tensor '{}'", item.key));
      fields.find("doc", JsonKind::kString);
      const mlir::Type type = readType(fields);
      const JsonValue* condition = fields.findAny("if");
      const bool absent = condition != nullptr &&
                          readSize(r_, *condition, fmt::format("'if' of {}", fields.what()), 0, kMaxDim) == 0;
      const std::optional<Sharding> sharding = readSharding(fields);
      fields.finish();
      if (sharding == Sharding::kPartial)
        fields.fail(item.pos, fmt::format("{} is partial, which no input or output is", fields.what()));
      r_.tensors[item.key] = {type, sharding, item.keyPos, absent};
    }
  }

  // Reads a word; or "activation.columns" or "activation.rows", the sharding of what the activation that the
  // symbol selects reads.
  std::optional<Sharding> readSharding(Fields& fields) {
    const JsonValue* json = fields.find("parallel", JsonKind::kString);
    const size_t dot = json == nullptr ? std::string::npos : json->text.find('.');
    if (dot == std::string::npos) return readEnum<Sharding>(r_, fields, "parallel");
    const std::string name = json->text.substr(0, dot), part = json->text.substr(dot + 1);
    const Expected<ActivationKind> kind = findActivation(r_.symbols, name);
    if (!kind) fields.fail(json->pos, fmt::format("{}: {}", fields.what(), kind.error().message));
    if (part != "columns" && part != "rows")
      fields.fail(json->pos, fmt::format("{} has parallel '{}', expected {}.columns or {}.rows",
                                         fields.what(), json->text, name, name));
    if (!kind) return {};
    return part == "rows" ? findShardedRows(*kind) : findShardedColumns(*kind);
  }

  // A routing after an error.
  mlir::Type readType(Fields& fields) {
    const mlir::Type routing = moe::RoutingType::get(r_.builder.getContext());
    const JsonValue& value = fields.require("type", JsonKind::kString);
    if (value.text == "routing") return routing;
    const std::optional<DType> type = dtypeFromName(value.text);
    if (!isGraphType(type)) {
      std::string expected;
      for (DType known : kGraphTypes)
        expected += fmt::format("{}{}", expected.empty() ? "" : ", ", dtypeName(known));
      errors_.fail(value.pos, fmt::format("{} has type '{}', expected {} or routing", fields.what(),
                                          value.text, expected));
    }
    const JsonValue& shape = fields.require("shape", JsonKind::kArray);
    if (shape.items.empty() || shape.items.size() > 3)
      errors_.fail(shape.pos,
                   fmt::format("{} has {} dimensions, expected 1 to 3", fields.what(), shape.items.size()));
    llvm::SmallVector<int64_t> dims;
    for (const JsonValue& dim : shape.items)
      dims.push_back(
          readDim(dim, dims.empty(), fmt::format("dimension {} of {}", dims.size(), fields.what())));
    if (errors_.first()) return routing;
    mlir::MLIRContext* const context = r_.builder.getContext();
    return moe::MoeTensorType::get(context, dims, mlirElementType(context, *type));
  }

  int64_t readDim(const JsonValue& value, bool first, const std::string& what) {
    if (value.kind != JsonKind::kString || !isExtent(value.text)) {
      if (first) checkQuotient(value, what);
      return readSize(r_, value, what, 1, kMaxDim);
    }
    if (!first)
      errors_.fail(value.pos,
                   fmt::format("{} is {}, which only the first dimension may be", what, value.text));
    if (value.text == "E") return graph_.getExpertsOfRank();
    return value.text == "T" ? moe::MoeTensorType::kTokens : moe::MoeTensorType::kRows;
  }

  // "experts/ep" is what a graph may have had before its sizes were set like this.
  void checkQuotient(const JsonValue& value, const std::string& what) {
    if (!graph_.expertsDiffer() || value.kind != JsonKind::kString ||
        value.text.find('/') == std::string::npos)
      return;
    if (const Expected<int64_t> size = evaluateSize(value.text, r_.symbols); !size)
      errors_.fail(value.pos, fmt::format("{} ('{}'): {}; the experts of a rank are \"E\"", what, value.text,
                                          size.error().message));
  }

  // The first of the file that nothing reads; the dialect knows no tensors without an op.
  void checkUses() {
    const std::pair<const std::string, Reading::Tensor>* unused = nullptr;
    const auto place = [](const auto& tensor) {
      return std::pair(tensor.second.pos.line, tensor.second.pos.column);
    };
    for (const auto& tensor : r_.tensors)
      if (!r_.used.contains(tensor.first) && (unused == nullptr || place(tensor) < place(*unused)))
        unused = &tensor;
    if (unused != nullptr)
      errors_.fail(unused->second.pos,
                   fmt::format("tensor '{}' is used by no node and is no output", unused->first));
    for (const auto& [name, tensor] : r_.tensors)
      if (tensor.sharding && !tensor.mayBePart)
        errors_.fail(tensor.pos,
                     fmt::format("tensor '{}' has 'parallel', which only inputs and outputs of rows "
                                 "have: that of other tensors follows from it",
                                 name));
  }

  ErrorSink errors_;
  Reading r_;
  moe::GraphOp graph_;
};

Expected<std::string> readFile(const std::string& path) {
  const auto cannot = [&] {
    return Error{fmt::format("{}: error: cannot read: {}", path, std::strerror(errno))};
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return cannot();
  // Memory for the longest text would take ten times as long as most compilations.
  std::string text;
  std::array<char, 1 << 14> part;
  for (size_t size = part.size(); size == part.size() && text.size() <= kMaxGraphBytes;) {
    size = std::fread(part.data(), 1, part.size(), file.get());
    text.append(part.data(), size);
  }
  if (std::ferror(file.get()) != 0) return cannot();
  if (text.size() <= kMaxGraphBytes) return text;
  return Error{fmt::format("{}: error: longer than {} bytes", path, kMaxGraphBytes)};
}

}  // namespace

Expected<Module> readGraphText(std::string_view text, std::string_view file, SymbolSets sets,
                               mlir::MLIRContext& context) {
  context.loadDialect<moe::MoeDialect>();
  context.printOpOnDiagnostic(false);
  const Expected<JsonValue> root = parseJson(text, file);
  if (!root) return root.error();
  return GraphReader(file, context).read(*root, sets);
}

Expected<Module> readGraph(const std::string& path, SymbolSets sets, mlir::MLIRContext& context) {
  const Expected<std::string> text = readFile(path);
  if (!text) return text.error();
  return readGraphText(*text, path, sets, context);
}

}  // namespace sluice
