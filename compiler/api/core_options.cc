#include "compiler/api/core_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string_view>

#include "compiler/analysis/fusion.h"

namespace sluice {
namespace {

constexpr int32_t kMaxCores = 4096;

bool parseNumber(std::string_view text, int32_t least, int32_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= least && value <= kMaxCores;
}

// N, or KIND=N. Without a kind N is the number of all cores.
bool parsePart(std::string_view part, CompileOptions& options) {
  const size_t equals = part.find('=');
  if (equals == std::string_view::npos) return parseNumber(part, 1, options.cores);
  const std::string_view kind = part.substr(0, equals), number = part.substr(equals + 1);
  SeparateCores& separate = options.separate;
  if (kind == "cube") return parseNumber(number, 1, separate.cube);
  if (kind == "vector") return parseNumber(number, 1, separate.vector);
  if (kind == "send") return parseNumber(number, 1, options.sendCores);
  if (kind == "return") return parseNumber(number, 1, options.returnCores);
  return kind == "communication" && parseNumber(number, 0, separate.communication.emplace(0));
}

// The words of `fuse` that join a product and vector work in one node; empty: none.
std::string fusedWords(const std::vector<std::string>& fuse) {
  std::string words;
  for (const std::string& word : fuse)
    if (word == "all" || word == "activation" || word == "activation-grad")
      words += (words.empty() ? "" : ",") + word;
  return words;
}

// The sends and returns of which the options limit the cores.
struct Limit {
  const char *kind, *tasks;
  int32_t cores;
};
std::array<Limit, 2> listLimits(const CompileOptions& options) {
  return {{{"send", "sends", options.sendCores}, {"return", "returns", options.returnCores}}};
}

Status checkLimits(const Target& target, const CompileOptions& options) {
  const int32_t cores = target.cubeCores == 0            ? target.cores
                        : target.communicationCores == 0 ? target.vectorCores
                                                         : target.communicationCores;
  for (const Limit& limit : listLimits(options))
    if (limit.cores < 0 || limit.cores > cores)
      return Error{fmt::format("error: --cores {}={}, expected 1 to {}, the cores that may communicate",
                               limit.kind, limit.cores, cores)};
  return {};
}

Status checkSeparate(const Target& target, const CompileOptions& options) {
  if (options.cores != 0)
    return Error{
        fmt::format("error: target '{}' has separate cube and vector cores, expected cube=N,vector=N, not {}",
                    target.name, options.cores)};
  for (const auto& [name, value] :
       {std::pair("cube", target.cubeCores), std::pair("vector", target.vectorCores)})
    if (value < 1 || value > kMaxCores)
      return Error{
          fmt::format("error: the number of {} cores is {}, expected 1 to {}", name, value, kMaxCores)};
  if (target.communicationCores < 0 || target.communicationCores >= target.vectorCores)
    return Error{fmt::format("error: {} of {} vector cores are reserved for communication, expected 0 to {}",
                             target.communicationCores, target.vectorCores, target.vectorCores - 1)};
  if (const std::string words = fusedWords(options.fuse); !words.empty())
    return Error{
        fmt::format("error: cannot fuse {} for target '{}', whose products run on cube cores and all else on "
                    "vector cores, "
                    "expected none or scale",
                    words, target.name)};
  return {};
}

}  // namespace

std::string parseCores(const std::string& text, CompileOptions& options) {
  std::set<std::string_view> kinds;
  std::string_view rest = text;
  bool fits = !rest.empty();
  while (fits && !rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    const size_t equals = part.find('=');
    const std::string_view kind = part.substr(0, equals == part.npos ? 0 : equals);
    fits = parsePart(part, options) && kinds.insert(kind).second && comma + 1 != rest.size();
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (fits && (options.cores == 0 || options.separate == SeparateCores{})) return {};
  return fmt::format(
      "--cores {}: expected N, a number from 1 to {}, or some of cube=N,vector=N,communication=N, and "
      "possibly send=N,return=N",
      text, kMaxCores);
}

std::string coresText(const CompileOptions& options) {
  const SeparateCores& separate = options.separate;
  std::string text;
  const auto add = [&](const char* kind, int32_t count) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ",", kind, count);
  };
  if (options.cores != 0) add("", options.cores);
  if (separate.cube != 0) add("cube=", separate.cube);
  if (separate.vector != 0) add("vector=", separate.vector);
  if (separate.communication) add("communication=", *separate.communication);
  if (options.sendCores != 0) add("send=", options.sendCores);
  if (options.returnCores != 0) add("return=", options.returnCores);
  return text;
}

void adjustSeparateCores(Target& target, const SeparateCores& cores) {
  const int64_t communication = target.communicationCores, all = std::max(target.vectorCores, 1);
  if (cores.cube != 0) target.cubeCores = cores.cube;
  if (cores.vector != 0) {
    target.vectorCores = cores.vector;
    const int64_t share = (communication * cores.vector + all / 2) / all;
    target.communicationCores = static_cast<int32_t>(std::min<int64_t>(share, cores.vector - 1));
  }
  if (cores.communication) target.communicationCores = *cores.communication;
}

Status checkCoreOptions(const Target& target, const CompileOptions& options) {
  const SeparateCores& given = options.separate;
  if (target.cubeCores != 0) {
    if (Status status = checkSeparate(target, options); !status) return status;
  } else if (given != SeparateCores{}) {
    return Error{fmt::format("error: the cores of target '{}' are unified, expected their number, not {}",
                             target.name, coresText(options))};
  }
  return checkLimits(target, options);
}

void describeCores(const Target& target, const CompileOptions& options, std::vector<Decision>& decisions) {
  const auto add = [&](std::string what, std::string why) {
    decisions.push_back({"", std::move(what), std::move(why)});
  };
  if (target.cubeCores != 0)
    add(fmt::format("products on {} cube cores, all else on {} vector cores; no product is fused "
                    "with vector work",
                    target.cubeCores, target.vectorCores),
        fmt::format("target '{}' has separate matrix and vector cores", target.name));
  if (target.cubeCores != 0 && target.communicationCores > 0)
    add(fmt::format("{} of the {} vector cores only send and return rows", target.communicationCores,
                    target.vectorCores),
        "as the target or --cores says");
  for (const Limit& limit : listLimits(options))
    if (limit.cores > 0)
      add(fmt::format("{} on the first {} of the cores that may communicate", limit.tasks, limit.cores),
          "as --cores says");
}

}  // namespace sluice
