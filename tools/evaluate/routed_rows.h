// RoutedRows: the (token, k) pair of each row of each rank, from the expert ids of all ranks.
//
// Value type. Rows are stored expert by expert, inside an expert by source rank, then by token, as
// docs/PROGRAM.md specifies; computed independently of the runtime, which this checks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/program/program.h"
#include "tools/evaluate/values.h"

namespace sluice::tools {

struct RoutedRow {
  int32_t source = 0;  // rank
  int64_t pair = 0;    // token * topK + k of that rank
};

struct RankRows {
  std::vector<RoutedRow> rows;
  std::vector<int64_t> expertBegin;  // first row of each expert of the rank, then the number of rows
};

// `ids` [T, K], one per rank. Errors: an expert id out of range or repeated (rank, token).
Expected<std::vector<RankRows>> routeRows(const TaskProgram& program, std::span<const Values* const> ids);

}  // namespace sluice::tools
