#include "tools/report/tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/one_line.h"

namespace sluice::tools {
namespace {

std::string cellText(const nlohmann::ordered_json& cell) {
  if (cell.is_string()) return oneLine(cell.get<std::string>());
  return cell.is_number_float() ? fmt::format("{:.3f}", cell.get<double>()) : cell.dump();
}

}  // namespace

nlohmann::ordered_json tableJson(const ReportTable& table) {
  nlohmann::ordered_json columns = nlohmann::ordered_json::array(), rows = nlohmann::ordered_json::array();
  for (const TableColumn& column : table.columns)
    columns.push_back({{"name", column.name}, {"numeric", column.isNumber}});
  for (const auto& row : table.rows) rows.push_back(row);
  return {
      {"id", table.id}, {"title", table.title}, {"note", table.note}, {"columns", columns}, {"rows", rows}};
}

std::string tableText(const ReportTable& table, size_t most) {
  const size_t shown = std::min(most, table.rows.size());
  std::vector<size_t> widths;
  std::vector<std::vector<std::string>> lines(shown + 1);
  for (size_t c = 0; c < table.columns.size(); ++c) {
    lines[0].push_back(table.columns[c].name);
    for (size_t r = 0; r < shown; ++r) lines[r + 1].push_back(cellText(table.rows[r][c]));
    size_t width = 0;
    for (const auto& line : lines) width = std::max(width, line[c].size());
    widths.push_back(width);
  }
  std::string text = table.title + "\n";
  if (!table.note.empty()) text += table.note + "\n";
  for (const auto& line : lines) {
    std::string row;
    for (size_t c = 0; c < line.size(); ++c)
      row += table.columns[c].isNumber ? fmt::format("{}{:>{}}", c ? "  " : "", line[c], widths[c])
                                       : fmt::format("{}{:<{}}", c ? "  " : "", line[c], widths[c]);
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  if (shown < table.rows.size()) text += fmt::format("and {} more\n", table.rows.size() - shown);
  return text;
}

}  // namespace sluice::tools
