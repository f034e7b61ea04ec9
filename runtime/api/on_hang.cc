#include "runtime/api/on_hang.h"

#include <fmt/format.h>

#include <cstdlib>

#include "runtime/base/one_line.h"

namespace sluice {

constexpr std::string_view kRank = "{rank}";

Expected<std::string> parseOnHang(std::string_view text) {
  constexpr std::string_view kTrace = "trace", kFile = "trace=";
  if (text == kTrace) return std::string("hang-{rank}.json");
  if (text.starts_with(kFile) && text.size() > kFile.size()) return std::string(text.substr(kFile.size()));
  return Error{fmt::format("found '{}', expected trace or trace=FILE", oneLine(text))};
}

Expected<std::string> hangFileOf(const std::string& pattern, const Transport& transport) {
  if (pattern.empty()) return pattern;
  if (transport.size() > 1 && pattern.find(kRank) == std::string::npos)
    return Error{fmt::format("found no {} in '{}', expected it in the files of {} ranks", kRank,
                             oneLine(pattern), transport.size())};
  const char* const variable = transport.kind() == "threads" ? nullptr : std::getenv("RANK");
  const std::string number = variable ? variable : std::to_string(transport.rank());
  std::string path = pattern;
  for (size_t at = path.find(kRank); at != std::string::npos; at = path.find(kRank, at + number.size()))
    path.replace(at, kRank.size(), number);
  return path;
}

}  // namespace sluice
