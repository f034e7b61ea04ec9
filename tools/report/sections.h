// The parts of a report as JSON, which the page draws (page/data.js has the format). Free functions of
// values.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/report/run.h"

namespace sluice::tools {

using Json = nlohmann::ordered_json;

// "#rrggbb" by FamilyId: sums and what communicates apart from products and weight gradients.
std::vector<std::string> familyColours(const TaskProgram& program);

Json familiesJson(const TaskProgram& program);
Json graphsJson(const TaskProgram& program);

// The regions and buffers of each entry, over its families or, where there is a run, over the first run's
// time at the first rank. Bytes are for a balanced step with max_tokens.
Json memoryJson(const ReportSource& source);

// Who waits for whom in a run that failed; null if none did.
Json hangJson(const ReportSource& source);

// Adds processes, tracks, lanes, spans, use, roofline and routing.
void addRunJson(const ReportSource& source, const Run& run, Json& report);

}  // namespace sluice::tools
