// A memory report as JSON. Free functions.
#pragma once

#include <nlohmann/json.hpp>

#include "compiler/report/memory_report.h"

namespace sluice {

// {"fixed", "T", "R", "P"}, and "E" if ranks own different numbers of experts: the factors, and
// "balanced": the value in a balanced step with max_tokens.
nlohmann::ordered_json formulaJson(const TaskProgram& program, const Formula& formula);

nlohmann::ordered_json memoryJson(const TaskProgram& program, const MemoryReport& report);

}  // namespace sluice
