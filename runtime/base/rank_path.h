// Names of files of which each rank has its own: "{rank}" in them stands for its number. Free functions.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

inline constexpr std::string_view kRankInPath = "{rank}";

inline bool hasRank(std::string_view pattern) { return pattern.find(kRankInPath) != pattern.npos; }

// The pattern with every "{rank}" replaced.
inline std::string rankPath(std::string pattern, std::string_view number) {
  for (size_t at = pattern.find(kRankInPath); at != pattern.npos;
       at = pattern.find(kRankInPath, at + number.size()))
    pattern.replace(at, kRankInPath.size(), number);
  return pattern;
}

}  // namespace sluice
