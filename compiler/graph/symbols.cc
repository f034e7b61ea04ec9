#include "compiler/graph/symbols.h"

#include <fmt/format.h>

#include <charconv>

namespace sluice {

namespace {

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
  if (const GraphSymbol* symbol = findSymbol(symbols, factor)) return symbol->value;
  return Error{fmt::format("unknown symbol '{}', the symbols are:\n{}", factor, describeSymbols(symbols))};
}

}  // namespace

std::string describeSymbols(std::span<const GraphSymbol> symbols) {
  std::string text;
  for (const GraphSymbol& symbol : symbols) {
    if (!text.empty()) text += '\n';
    text += fmt::format("  {} = {} ({} to {})", symbol.name, symbol.initial, symbol.min, symbol.max);
    if (!symbol.doc.empty()) text += ": " + symbol.doc;
  }
  return text.empty() ? "  (none)" : text;
}

Status setSymbols(std::span<GraphSymbol> symbols, std::span<const std::pair<std::string, int64_t>> sets) {
  for (const auto& [name, value] : sets) {
    GraphSymbol* symbol = findSymbol(symbols, name);
    if (symbol == nullptr) {
      return Error{fmt::format("unknown symbol '{}', the symbols are:\n{}", name, describeSymbols(symbols))};
    }
    if (value < symbol->min || value > symbol->max) {
      return Error{fmt::format("symbol '{}' is set to {}, expected {} to {}; the symbols are:\n{}", name,
                               value, symbol->min, symbol->max, describeSymbols(symbols))};
    }
    symbol->value = value;
  }
  return {};
}

Expected<int64_t> evaluateSize(std::string_view text, std::span<const GraphSymbol> symbols) {
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

}  // namespace sluice
