#include "tools/cli/core_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "runtime/program/words.h"

namespace sluice::tools {
namespace {

constexpr CoreKind kKinds[] = {CoreKind::kUnified, CoreKind::kCube, CoreKind::kVector};

// The existing cores, as errors list them: "cube0 to cube23 or vector0 to vector47".
std::string knownCores(const TaskProgram& program) {
  std::string text;
  for (const CoreKind kind : kKinds)
    if (const int32_t cores = program.coreCount(kind); cores > 0)
      text += fmt::format("{0}{1}0 to {1}{2}", text.empty() ? "" : " or ", text::word(kind), cores - 1);
  return text.empty() ? "none, for the program has no cores" : text;
}

}  // namespace

Expected<CoreName> findCore(const TaskProgram& program, std::string_view name) {
  const int32_t most = std::max({program.cores, program.cubeCores, program.vectorCores});
  const Error unknown{
      fmt::format("found core '{}', expected 0 to {}, or {}", name, most - 1, knownCores(program))};
  const size_t digits = std::min(name.find_first_of("0123456789"), name.size());
  CoreName core;
  const auto [end, error] = std::from_chars(name.data() + digits, name.data() + name.size(), core.number);
  if (error != std::errc{} || end != name.data() + name.size()) return unknown;
  if (digits > 0) {
    const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](CoreKind one) { return text::word(one) == name.substr(0, digits); });
    if (kind == std::end(kKinds)) return unknown;
    core.kind = *kind;
  }
  if (core.number >= (core.kind ? program.coreCount(*core.kind) : most)) return unknown;
  return core;
}

std::string coreCounts(const TaskProgram& program) {
  if (program.cubeCores == 0 && program.vectorCores == 0) return fmt::format("{} cores", program.cores);
  return fmt::format("{} cube cores, {} vector cores", program.cubeCores, program.vectorCores);
}

}  // namespace sluice::tools
