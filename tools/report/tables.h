// The tables of a report. Free functions of values.
#pragma once

#include <string>
#include <vector>

#include "tools/report/run.h"
#include "tools/report/table.h"

namespace sluice::tools {

// "R x 4096".
std::string shapeText(const Buffer& buffer);

// By family, overlap, critical path, slowest slots, waits and workers; those without a row are left out.
std::vector<ReportTable> runTables(const ReportSource& source, const Run& run);

// Families, lanes, events and buffers.
std::vector<ReportTable> programTables(const TaskProgram& program);

}  // namespace sluice::tools
