// Reads one entry: its nodes in JSON become ops, producers before readers. Part of read_graph.
#pragma once

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/graph/fields.h"
#include "compiler/graph/symbols.h"
#include "mlir/IR/Builders.h"
#include "runtime/program/words.h"

namespace sluice {

inline constexpr size_t kMaxGraphNodes = 1024;  // per entry

// A graph file while it is being read. Belongs to one reader.
struct Reading {
  struct Tensor {
    mlir::Type type;
    std::optional<Sharding> sharding;
    SourcePos pos;
    bool absent = false;     // its "if" is 0: where it is named, nothing is
    bool mayBePart = false;  // an input of an entry, or an output of rows
  };

  std::string file;
  ErrorSink& errors;
  mlir::OpBuilder builder;
  std::vector<GraphSymbol> symbols;
  std::map<std::string, Tensor> tensors;
  std::set<std::string> used;  // tensors with a reader

  mlir::Location at(SourcePos pos) {
    return mlir::FileLineColLoc::get(builder.getContext(), file, static_cast<unsigned>(pos.line),
                                     static_cast<unsigned>(pos.column));
  }
};

// A size: a whole number, or a string that evaluateSize() accepts. Out of range is an error.
int64_t readSize(Reading& reading, const JsonValue& value, std::string_view what, int64_t min, int64_t max);

// A value of an enumeration of program.fbs: its word, or a word symbol with one. None if the field is absent.
template <class E>
std::optional<E> readEnum(Reading& reading, Fields& fields, std::string_view name) {
  const JsonValue* json = fields.find(name, JsonKind::kString);
  if (json == nullptr) return std::nullopt;
  const GraphSymbol* symbol = findWord(reading.symbols, json->text);
  const std::string& word = symbol != nullptr ? symbol->word() : json->text;
  const std::optional<E> value = text::fromWord<E>(word);
  if (!value)
    fields.fail(json->pos,
                fmt::format("{} has {} '{}', expected {}", fields.what(), name, word, text::wordList<E>()));
  return value;
}

// Appends the entry's op to the block of the builder.
void readEntry(Reading& reading, const JsonValue& value);

}  // namespace sluice
