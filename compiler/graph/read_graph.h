// Reads graph files. The form is described in graphs/FORMAT.md.
//
// Free functions; the files are untrusted. Errors are "file:line:column: error: message", with the file as
// given.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "compiler/graph/graph.h"
#include "runtime/base/expected.h"

namespace sluice {

using SymbolSets = std::span<const std::pair<std::string, int64_t>>;

inline constexpr size_t kMaxGraphBytes = 4 << 20;

// The graph in the file at `path`, with the symbols named in `sets` set to other values than their defaults.
Expected<Graph> readGraph(const std::string& path, SymbolSets sets);

// Likewise from a text; `file` is for messages.
Expected<Graph> readGraphText(std::string_view text, std::string_view file, SymbolSets sets);

}  // namespace sluice
