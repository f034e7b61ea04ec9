#include "tools/report/source.h"

#include <fmt/format.h>

#include <utility>

#include "tools/trace/trace_files.h"

namespace sluice::tools {

Expected<ReportSource> readSource(const std::string& path, int number) {
  if (!path.ends_with(".json")) {
    Expected<Program> program = Program::load(path);
    if (!program) return program.error();
    if (number > 0)
      return Error{fmt::format("{}: --program: found {}, expected 0: it is one program", path, number)};
    return ReportSource{path, std::move(*program), 0, {}};
  }
  Expected<std::vector<TracedProgram>> traced = readTrace(path);
  if (!traced) return traced.error();
  if (number < 0 && traced->size() > 1) {
    std::string list;
    for (size_t i = 0; i < traced->size(); ++i)
      list +=
          fmt::format("\n  {}: {}, rank {}", i, (*traced)[i].program.tables().name, (*traced)[i].firstRank);
    return Error{fmt::format("{}: found {} programs, expected the number of one with --program:{}", path,
                             traced->size(), list)};
  }
  if (number >= std::ssize(*traced))
    return Error{fmt::format("{}: --program: found {}, expected 0 to {}", path, number, traced->size() - 1)};
  TracedProgram& one = (*traced)[static_cast<size_t>(number < 0 ? 0 : number)];
  bool anySpan = false;
  for (const Trace& trace : one.ranks) anySpan = anySpan || !trace.spans.empty();
  if (!anySpan)
    return Error{fmt::format("{}: found no span of program '{}'", path, one.program.tables().name)};
  return ReportSource{path, std::move(one.program), one.firstRank, std::move(one.ranks)};
}

}  // namespace sluice::tools
