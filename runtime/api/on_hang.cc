#include "runtime/api/on_hang.h"

#include <fmt/format.h>

#include <cstdlib>

#include "runtime/base/one_line.h"
#include "runtime/base/rank_path.h"

namespace sluice {

Expected<std::string> parseOnHang(std::string_view text) {
  constexpr std::string_view kTrace = "trace", kFile = "trace=";
  if (text == kTrace) return std::string("hang-{rank}.json");
  if (text.starts_with(kFile) && text.size() > kFile.size()) return std::string(text.substr(kFile.size()));
  return Error{fmt::format("found '{}', expected trace or trace=FILE", oneLine(text))};
}

Expected<std::string> makeHangFile(const std::string& pattern, const Transport& transport) {
  if (pattern.empty()) return pattern;
  if (transport.size() > 1 && !hasRank(pattern))
    return Error{fmt::format("found no {} in '{}', expected it in the files of {} ranks", kRankInPath,
                             oneLine(pattern), transport.size())};
  const char* const variable = transport.kind() == "threads" ? nullptr : std::getenv("RANK");
  return rankPath(pattern, variable ? variable : std::to_string(transport.rank()));
}

}  // namespace sluice
