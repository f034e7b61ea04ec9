// What a report is about: a program, and what its ranks recorded if it ran.
//
// Value type and a free function of values.
#pragma once

#include <string>
#include <vector>

#include "runtime/api/program.h"
#include "runtime/base/expected.h"
#include "runtime/exec/trace_span.h"

namespace sluice::tools {

struct ReportSource {
  std::string file;
  Program program;
  int firstRank = 0;
  std::vector<Trace> ranks;  // empty: a program without a run

  bool hasRun() const { return !ranks.empty(); }
  // "rank 3" of the rank-th trace.
  std::string nameOf(size_t rank) const {
    return "rank " + std::to_string(firstRank + static_cast<int>(rank));
  }
};

// Reads a program file, or a trace (a path that ends in ".json"). `number` picks one of several programs in a
// trace, from 0; -1: it has only one. Errors: those of Program::load() and readTrace(); several programs and
// no number (they are listed), or none of that number.
Expected<ReportSource> readSource(const std::string& path, int number);

}  // namespace sluice::tools
