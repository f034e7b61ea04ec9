// A small graph for tests, and errors expected at the place of a given text.
#pragma once

#include <string>
#include <string_view>

#include "compiler/graph/read_graph.h"

namespace sluice::testing {

// Two products: rows = up(x), y = sum of down(rows). Sizes: 2 ranks, 8 experts, top_k 2, hidden 64.
std::string smallGraph();

// smallGraph() with the first `from` replaced; `from` must occur.
std::string edited(std::string_view from, std::string_view to);
std::string edited(std::string text, std::string_view from, std::string_view to);

// The IR of `text` as "g.json", printed; fails the test if it cannot be read.
std::string irOf(std::string_view text, SymbolSets sets = {});

// Likewise for graphs/moe_ffn/NAME.
std::string irOfFile(const std::string& name, SymbolSets sets = {});

// The error message from reading `text` as "g.json", or "no error".
std::string errorOf(std::string_view text, SymbolSets sets = {});

// "g.json:line:column" of the first `needle` in `text`.
std::string placeInText(std::string_view text, std::string_view needle);

// "g.json:line:column: error: message" with the place of the first `needle` in `text`.
std::string errorAtText(std::string_view text, std::string_view needle, std::string_view message);

}  // namespace sluice::testing
