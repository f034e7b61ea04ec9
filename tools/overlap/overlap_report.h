// Prints the measurements of an OverlapProbe, as columns of a table and as JSON; and the columns of tables
// that are printed as text and as Markdown. Free functions of values.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/overlap/overlap.h"

namespace sluice::tools {

// A column of a table.
struct Column {
  std::string_view head;
  int width;  // in text, where cells are right-aligned
};

inline std::vector<std::string> listHeads(std::span<const Column> columns) {
  std::vector<std::string> heads;
  for (const Column& column : columns) heads.emplace_back(column.head);
  return heads;
}

inline std::string textLine(std::span<const Column> columns, const std::vector<std::string>& cells) {
  std::string text;
  for (size_t i = 0; i < columns.size(); ++i) text += fmt::format("{:>{}}", cells[i], columns[i].width);
  return text;
}

inline std::string markdownLine(const std::vector<std::string>& cells) {
  return fmt::format("| {} |\n", fmt::join(cells, " | "));
}

inline std::string markdownHeads(const std::vector<std::string>& heads) {
  std::string text = markdownLine(heads);
  for (size_t i = 0; i < heads.size(); ++i) text += "|---";
  return text + "|\n";
}

// The three times in ms, overlap efficiency, rows, MB and orders (pieces and signals) to other ranks, what
// the transport counted, processor time and switches of threads. `cpuUnits` as in computeFigures().
std::span<const Column> overlapColumns();
std::vector<std::string> overlapCells(const EntryOverlap& overlap, int cpuUnits = 0);

// The figures and every sample.
nlohmann::ordered_json overlapJson(const EntryOverlap& overlap, int cpuUnits = 0);

// Reads the samples and counts that overlapJson() wrote. Error: another JSON.
Expected<EntryOverlap> overlapFromJson(const nlohmann::ordered_json& json);

}  // namespace sluice::tools
