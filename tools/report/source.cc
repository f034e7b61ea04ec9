#include "tools/report/source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "tools/trace/trace_files.h"

namespace sluice::tools {

namespace {

// "0: moe_ffn, 2 ranks from rank 0" by lines.
std::string formatPrograms(const std::vector<TracedProgram>& traced) {
  std::string list;
  for (size_t i = 0; i < traced.size(); ++i) {
    const TracedProgram& each = traced[i];
    const std::string first = fmt::format("rank {}", each.firstRank);
    list += fmt::format(
        "\n  {}: {}, {}", i, each.program.tables().name,
        each.ranks.size() > 1 ? fmt::format("{} ranks from {}", each.ranks.size(), first) : first);
  }
  return list;
}

// The place of a choice among the programs; their number if it is not there.
Expected<size_t> findChoice(const std::string& choice, const std::vector<TracedProgram>& traced) {
  size_t number = 0;
  if (const auto [end, failed] = std::from_chars(choice.data(), choice.data() + choice.size(), number);
      failed == std::errc() && end == choice.data() + choice.size())
    return std::min(number, traced.size());
  const Expected<Program> program = Program::load(choice);
  if (!program) return program.error();
  const auto found =
      std::ranges::find(traced, program->verified().fingerprint(),
                        [](const TracedProgram& each) { return each.program.verified().fingerprint(); });
  return static_cast<size_t>(found - traced.begin());
}

}  // namespace

Expected<ReportSource> readSource(const std::string& path, const std::vector<std::string>& choices) {
  if (!isTrace(path)) {
    Expected<Program> program = Program::load(path);
    if (!program) return program.error();
    return ReportSource{path, std::move(*program), 0, {}};
  }
  Expected<std::vector<TracedProgram>> traced = readTrace(path);
  if (!traced) return traced.error();
  if (choices.empty() && traced->size() > 1)
    return Error{fmt::format("{}: found {} programs, expected the number of one with --program:{}", path,
                             traced->size(), formatPrograms(*traced))};
  size_t place = choices.empty() ? 0 : traced->size();
  for (size_t i = 0; i < choices.size() && place == traced->size(); ++i) {
    const Expected<size_t> found = findChoice(choices[i], *traced);
    if (!found) return found.error();
    place = *found;
  }
  if (place == traced->size())
    return Error{fmt::format("{}: --program: found {}, expected one of:{}", path, fmt::join(choices, ", "),
                             formatPrograms(*traced))};
  TracedProgram& one = (*traced)[place];
  bool anySpan = false;
  for (const Trace& trace : one.ranks) anySpan = anySpan || !trace.spans.empty();
  if (!anySpan)
    return Error{fmt::format("{}: found no span of program '{}'", path, one.program.tables().name)};
  return ReportSource{path, std::move(one.program), one.firstRank, std::move(one.ranks)};
}

}  // namespace sluice::tools
