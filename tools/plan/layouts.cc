#include <fmt/format.h>

#include <charconv>

#include "tools/plan/plan.h"

namespace sluice::tools {
namespace {

constexpr int kMaxRanks = 4096;
constexpr int kMaxSlotRows = 65536, kRowUnit = 16;
constexpr std::string_view kAuto = "auto";

// A number at the beginning of `text`, which is removed.
bool takeNumber(std::string_view& text, int most, int& number) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || number < 1 || number > most) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool takeRanks(std::string_view& text, int& number) { return takeNumber(text, kMaxRanks, number); }

// Rows of a slot, as sluicec takes them, or `auto`.
bool takeSlotRows(std::string_view& text, int& number) {
  if (!text.starts_with(kAuto)) return takeNumber(text, kMaxSlotRows, number) && number % kRowUnit == 0;
  text.remove_prefix(kAuto.size());
  number = 0;
  return true;
}

}  // namespace

std::vector<int> RankRange::ranks() const {
  std::vector<int> numbers;
  for (int ranks = first; ranks <= last; ranks *= 2) numbers.push_back(ranks);
  return numbers;
}

Expected<RankRange> parseRanks(std::string_view text) {
  const Error wrong{fmt::format("found '{}', expected N or A..B, from 1 to {}", text, kMaxRanks)};
  RankRange range;
  std::string_view rest = text;
  if (!takeRanks(rest, range.first)) return wrong;
  range.last = range.first;
  if (rest.empty()) return range;
  if (!rest.starts_with("..")) return wrong;
  rest.remove_prefix(2);
  if (!takeRanks(rest, range.last) || !rest.empty() || range.last < range.first) return wrong;
  return range;
}

Expected<std::vector<int>> parseTp(std::string_view text) {
  std::vector<int> numbers;
  std::string_view rest = text;
  do {
    if (!numbers.empty()) rest.remove_prefix(1);
    int number = 0;
    if (!takeRanks(rest, number))
      return Error{fmt::format("found '{}', expected numbers from 1 to {}, such as 1,2,4", text, kMaxRanks)};
    numbers.push_back(number);
  } while (rest.starts_with(','));
  if (!rest.empty()) return Error{fmt::format("found '{}', expected numbers such as 1,2,4", text)};
  return numbers;
}

Expected<std::vector<int>> parseSlotRows(std::string_view text) {
  std::vector<int> numbers;
  std::string_view rest = text;
  do {
    if (!numbers.empty()) rest.remove_prefix(1);
    int number = 0;
    if (!takeSlotRows(rest, number) || (!rest.empty() && rest.front() != ','))
      return Error{fmt::format("found '{}', expected auto or multiples of {} from {} to {}, such as 64,128",
                               text, kRowUnit, kRowUnit, kMaxSlotRows)};
    numbers.push_back(number);
  } while (!rest.empty());
  return numbers;
}

std::vector<Layout> listLayouts(const LayerCase& layer, const RankRange& range, const std::vector<int>& tp,
                                const std::vector<int>& slotRows) {
  std::vector<Layout> layouts;
  for (const int ranks : range.ranks())
    for (const int shards : tp)
      if (ranks % shards == 0 && ranks / shards <= layer.experts && layer.inter % shards == 0)
        for (const int rows : slotRows) layouts.push_back({ranks / shards, shards, rows});
  return layouts;
}

}  // namespace sluice::tools
