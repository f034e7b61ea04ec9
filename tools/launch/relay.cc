#include "tools/launch/relay.h"

#include <fmt/format.h>

namespace sluice::tools {
namespace {

constexpr size_t kLongestLine = size_t{1} << 16;  // longer lines are shown in parts
constexpr std::string_view kError = "sluice: error: ";
constexpr std::string_view kRankError = "sluice: error: rank ";  // already names its rank

}  // namespace

std::string Relay::add(int rank, std::string_view bytes) {
  std::string& open = open_[static_cast<size_t>(rank)];
  open.append(bytes);
  std::string text;
  size_t begin = 0;
  for (size_t end; (end = open.find('\n', begin)) != open.npos; begin = end + 1)
    text += show(rank, std::string_view(open).substr(begin, end - begin));
  open.erase(0, begin);
  if (open.size() > kLongestLine) text += finish(rank);
  return text;
}

std::string Relay::finish(int rank) {
  std::string& open = open_[static_cast<size_t>(rank)];
  std::string text = open.empty() ? std::string() : show(rank, open);
  open.clear();
  return text;
}

std::string Relay::show(int rank, std::string_view line) {
  if (line.starts_with(kError) && !errors_.emplace(line).second) return {};
  shown_ = true;
  const bool named = open_.size() > 1 && !line.starts_with(kRankError);
  return named ? fmt::format("[rank {}] {}\n", rank, line) : fmt::format("{}\n", line);
}

}  // namespace sluice::tools
