// Symbols of a graph and the sizes written with them: "hidden", "2*intermediate", "experts/ep".
//
// Free functions on values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "compiler/graph/graph.h"
#include "runtime/base/expected.h"

namespace sluice {

// One line a symbol: name, default, range, doc.
std::string describeSymbols(std::span<const GraphSymbol> symbols);

// Sets symbols by name. An unknown name or a value out of range is an error that lists all symbols.
Status setSymbols(std::span<GraphSymbol> symbols, std::span<const std::pair<std::string, int64_t>> sets);

// Value of a size: numbers and symbols joined by `*` and `/`, from left to right. Quotients must be exact.
Expected<int64_t> evaluateSize(std::string_view text, std::span<const GraphSymbol> symbols);

}  // namespace sluice
