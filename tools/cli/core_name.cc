#include "tools/cli/core_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace sluice::tools {
namespace {

constexpr std::array<std::string_view, 3> kKinds = {"unified", "cube", "vector"};

// The kinds that lanes run on, as they are expected: "unified0 to unified7".
std::string knownCores(const TaskProgram& program) {
  std::string text;
  for (size_t kind = 0; kind < kKinds.size(); ++kind) {
    const auto runsHere = [&](const Lane& lane) { return static_cast<size_t>(lane.core) == kind; };
    if (std::none_of(program.lanes.begin(), program.lanes.end(), runsHere)) continue;
    text += fmt::format("{}{}0 to {}{}", text.empty() ? "" : " or ", kKinds[kind], kKinds[kind],
                        program.cores - 1);
  }
  return text.empty() ? "none, for the program has no lanes" : text;
}

}  // namespace

Expected<int32_t> findCore(const TaskProgram& program, std::string_view name) {
  const Error unknown{
      fmt::format("found core '{}', expected 0 to {}, or {}", name, program.cores - 1, knownCores(program))};
  const size_t digits = std::min(name.find_first_of("0123456789"), name.size());
  int32_t number = 0;
  const auto [end, error] = std::from_chars(name.data() + digits, name.data() + name.size(), number);
  if (error != std::errc{} || end != name.data() + name.size() || number >= program.cores) return unknown;
  if (digits == 0) return number;
  const bool exists = std::any_of(program.lanes.begin(), program.lanes.end(), [&](const Lane& lane) {
    const auto kind = static_cast<size_t>(lane.core);
    return kind < kKinds.size() && kKinds[kind] == name.substr(0, digits);
  });
  if (!exists) return unknown;
  return number;
}

}  // namespace sluice::tools
