// The columns of a table that is printed as text and as Markdown. Free functions of values.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::tools {

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

}  // namespace sluice::tools
