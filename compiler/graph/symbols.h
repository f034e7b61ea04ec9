// Symbols of a graph file, their values, and sizes written with them: "hidden", "2*intermediate",
// "experts/ep". The value of a symbol is a number, or one of several words.
//
// Value types and free functions on values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/enums.h"
#include "runtime/base/expected.h"

namespace sluice {

struct GraphSymbol {
  std::string name;
  int64_t value = 0;  // as set, or the default; for a word, its index in `words`
  int64_t initial = 0;
  int64_t min = 0;
  int64_t max = 0;
  std::vector<std::string> words = {};  // empty: the value is a number
  std::string doc;

  const std::string& word() const { return words[static_cast<size_t>(value)]; }
};

// New values of symbols, by name.
struct SymbolSets {
  std::span<const std::pair<std::string, int64_t>> numbers = {};
  std::span<const std::pair<std::string, std::string>> words = {};
};

// One line per symbol: name, default, range, doc.
std::string describeSymbols(std::span<const GraphSymbol> symbols);

// Sets symbols by name. An unknown name or a value out of range is an error that lists all symbols.
Status setSymbols(std::span<GraphSymbol> symbols, SymbolSets sets);

// The symbol of this name whose value is a word; null if there is none.
const GraphSymbol* findWord(std::span<const GraphSymbol> symbols, std::string_view name);

// The activation that the symbol of this name selects. Errors: there is no such symbol, or its word is no
// activation.
Expected<ActivationKind> findActivation(std::span<const GraphSymbol> symbols, std::string_view name);

// The value of a size: numbers and symbols joined by `*` and `/`, from left to right, in sums with `+`.
// "activation.inputs" is the number of inputs of the activation that the symbol `activation` selects.
// Quotients must be exact.
Expected<int64_t> evaluateSize(std::string_view text, std::span<const GraphSymbol> symbols);

}  // namespace sluice
