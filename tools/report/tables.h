// The tables of a report, for the page and for text.
//
// Value types and free functions of values.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/report/run.h"

namespace sluice::tools {

struct TableColumn {
  std::string name;
  bool isNumber = true;
};

struct ReportTable {
  std::string id;  // one word
  std::string title;
  std::string note;  // one sentence, or empty
  std::vector<TableColumn> columns;
  std::vector<std::vector<nlohmann::ordered_json>> rows;  // texts and numbers
};

nlohmann::ordered_json tableJson(const ReportTable& table);

// Aligned columns under the title, the note below it; at most `most` rows, and how many more there are.
std::string tableText(const ReportTable& table, size_t most);

// "R x 4096".
std::string shapeText(const Buffer& buffer);

// By family, overlap, critical path, slowest slots, waits and workers; those without a row are left out.
std::vector<ReportTable> runTables(const ReportSource& source, const Run& run);

// Families, lanes, events and buffers.
std::vector<ReportTable> programTables(const TaskProgram& program);

}  // namespace sluice::tools
