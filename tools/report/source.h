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
  std::string rankName(size_t rank) const {
    return "rank " + std::to_string(firstRank + static_cast<int>(rank));
  }
};

inline bool isTrace(const std::string& path) { return path.ends_with(".json"); }

// Reads a program file, or a trace (isTrace(path)). `choices` picks one of several programs in a
// trace: each is a number from 0 or a program file, and the first counts that is there. Errors: from
// Program::load() and readTrace(); several programs and no choice (they are listed), or none of the choices.
Expected<ReportSource> readSource(const std::string& path, const std::vector<std::string>& choices);

}  // namespace sluice::tools
