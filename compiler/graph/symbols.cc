#include "compiler/graph/symbols.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "runtime/base/activation_info.h"
#include "runtime/program/words.h"

namespace sluice {

namespace {

constexpr std::string_view kInputs = ".inputs";

template <class Symbols>
auto* findSymbol(Symbols symbols, std::string_view name) {
  for (auto& symbol : symbols) {
    if (symbol.name == name) return &symbol;
  }
  return static_cast<decltype(&symbols[0])>(nullptr);
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

Expected<int64_t> evaluateFactor(std::string_view factor, std::span<const GraphSymbol> symbols) {
  if (factor.empty()) return Error{"a number or symbol is missing"};
  if (factor[0] >= '0' && factor[0] <= '9') {
    int64_t value = 0;
    const auto [end, code] = std::from_chars(factor.data(), factor.data() + factor.size(), value);
    if (code == std::errc() && end == factor.data() + factor.size()) return value;
    return Error{fmt::format("'{}' is not a whole number in range", factor)};
  }
  if (factor.ends_with(kInputs)) {
    const auto kind = findActivation(symbols, factor.substr(0, factor.size() - kInputs.size()));
    if (!kind) return kind.error();
    return findInfo(*kind).inputs;
  }
  if (const GraphSymbol* symbol = findSymbol(symbols, factor)) {
    if (symbol->words.empty()) return symbol->value;
    return Error{fmt::format("symbol '{}' is a word, expected a number", factor)};
  }
  return Error{fmt::format("unknown symbol '{}', the symbols are:\n{}", factor, describeSymbols(symbols))};
}

Expected<int64_t> evaluateProduct(std::string_view text, std::span<const GraphSymbol> symbols) {
  int64_t value = 1;
  char op = '*';
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find_first_of("*/", begin), text.size());
    const Expected<int64_t> factor = evaluateFactor(trim(text.substr(begin, end - begin)), symbols);
    if (!factor) return factor.error();
    if (op == '*' && __builtin_mul_overflow(value, *factor, &value))
      return Error{"the product is out of range"};
    if (op == '/') {
      if (*factor == 0) return Error{"division by 0"};
      if (value % *factor != 0) return Error{fmt::format("{} is not divisible by {}", value, *factor)};
      value /= *factor;
    }
    if (end == text.size()) break;
    op = text[end];
    begin = end + 1;
  }
  return value;
}

// "1 to 8", or "swiglu, geglu".
std::string listSymbolValues(const GraphSymbol& symbol) {
  if (symbol.words.empty()) return fmt::format("{} to {}", symbol.min, symbol.max);
  return fmt::format("{}", fmt::join(symbol.words, ", "));
}

}  // namespace

std::string describeSymbols(std::span<const GraphSymbol> symbols) {
  std::string text;
  for (const GraphSymbol& symbol : symbols) {
    if (!text.empty()) text += '\n';
    const std::string initial = symbol.words.empty() ? std::to_string(symbol.initial)
                                                     : symbol.words[static_cast<size_t>(symbol.initial)];
    text += fmt::format("  {} = {} ({})", symbol.name, initial, listSymbolValues(symbol));
    if (!symbol.doc.empty()) text += ": " + symbol.doc;
  }
  return text.empty() ? "  (none)" : text;
}

Status setSymbols(std::span<GraphSymbol> symbols, SymbolSets sets) {
  const auto known = [&] { return describeSymbols(symbols); };
  const auto find = [&](const std::string& name) -> Expected<GraphSymbol*> {
    if (GraphSymbol* symbol = findSymbol(symbols, name)) return symbol;
    return Error{fmt::format("unknown symbol '{}', the symbols are:\n{}", name, known())};
  };
  for (const auto& [name, value] : sets.numbers) {
    const Expected<GraphSymbol*> symbol = find(name);
    if (!symbol) return symbol.error();
    if (!(*symbol)->words.empty() || value < (*symbol)->min || value > (*symbol)->max)
      return Error{fmt::format("symbol '{}' is set to {}, expected {}; the symbols are:\n{}", name, value,
                               listSymbolValues(**symbol), known())};
    (*symbol)->value = value;
  }
  for (const auto& [name, word] : sets.words) {
    const Expected<GraphSymbol*> symbol = find(name);
    if (!symbol) return symbol.error();
    const auto at = std::ranges::find((*symbol)->words, word);
    if (at == (*symbol)->words.end())
      return Error{fmt::format("symbol '{}' is set to '{}', expected {}; the symbols are:\n{}", name, word,
                               listSymbolValues(**symbol), known())};
    (*symbol)->value = at - (*symbol)->words.begin();
  }
  return {};
}

const GraphSymbol* findWord(std::span<const GraphSymbol> symbols, std::string_view name) {
  const GraphSymbol* symbol = findSymbol(symbols, name);
  return symbol == nullptr || symbol->words.empty() ? nullptr : symbol;
}

Expected<ActivationKind> findActivation(std::span<const GraphSymbol> symbols, std::string_view name) {
  const GraphSymbol* symbol = findWord(symbols, name);
  const auto kind = symbol == nullptr ? std::nullopt : text::fromWord<ActivationKind>(symbol->word());
  if (kind) return *kind;
  return Error{fmt::format("no symbol '{}' selects an activation, the symbols are:\n{}", name,
                           describeSymbols(symbols))};
}

Expected<int64_t> evaluateSize(std::string_view text, std::span<const GraphSymbol> symbols) {
  int64_t sum = 0;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    const Expected<int64_t> term = evaluateProduct(text.substr(begin, end - begin), symbols);
    if (!term) return term.error();
    if (__builtin_add_overflow(sum, *term, &sum)) return Error{"the sum is out of range"};
    begin = end + 1;
  }
  return sum;
}

}  // namespace sluice
