// RoutedRows: the (token, k) pair of each row of each rank, from the expert ids of all ranks.
//
// Value type. Rows are stored expert by expert, inside an expert by source rank, then by token, as
// docs/PROGRAM.md specifies; computed independently of the runtime, which this checks. Every rank of the
// group that owns an expert has its rows: the rows from all ranks, or if the ranks of a group have the same
// tokens, one copy of them.
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

// Where the rows of a source return: to it, or to all ranks of its group if they have the same tokens.
bool returnsTo(const TaskProgram& program, int32_t source, size_t rank);

// The ids [T, K] that send every token to every expert.
Values everyExpert(const TaskProgram& program, int64_t tokens);

// `ids` [T, K] and, if it has one, `placements` [experts], one per rank. Errors: an expert id out of
// range or repeated (rank, token); other ids at ranks that must have the same tokens; placements that differ,
// or lack an expert.
Expected<std::vector<RankRows>> routeRows(const TaskProgram& program, std::span<const Values* const> ids,
                                          std::span<const Values* const> placements = {});

}  // namespace sluice::tools
