#include "runtime/program/text_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/base/utf8.h"
#include "runtime/program/space_table.h"

namespace sluice::text {
namespace {

constexpr std::array<std::string_view, 15> kReserved = {"none",   "program", "target", "options", "graph",
                                                        "symbol", "limits",  "region", "buffer",  "entry",
                                                        "space",  "event",   "family", "lane",    "seat"};

constexpr uint32_t kZero = 0;

std::string dimText(const Dim& dim) {
  if (dim.extent == Extent::kFixed) return fmt::format("{}", dim.size);
  return dim.size == 0 ? word(dim.extent) : fmt::format("{}:{}", word(dim.extent), dim.size);
}

std::string valueText(int32_t value) { return std::to_string(value); }
std::string valueText(uint16_t flags) { return std::to_string(flags); }
// The shortest decimal number that parses to the same bits, or the bits themselves if no number does.
std::string valueText(float value) {
  return std::isfinite(value) ? fmt::format("{}", value)
                              : fmt::format("0x{:08x}", std::bit_cast<uint32_t>(value));
}
std::string valueText(ActivationKind kind) { return word(kind); }
std::string valueText(Rounding rounding) { return word(rounding); }
std::string valueText(BFloat16 value) { return valueText(toFloat(value)); }

// A character, or a byte that is not part of one, in the form that it has in quotes.
std::string escaped(std::string_view character, bool valid) {
  switch (character.front()) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\t':
      return "\\t";
    default:
      break;
  }
  if (valid && !isControl(character)) return std::string(character);
  std::string bytes;
  for (char c : character) bytes += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return bytes;
}

}  // namespace

bool isReserved(std::string_view word) {
  return std::find(kReserved.begin(), kReserved.end(), word) != kReserved.end();
}

bool isBareName(std::string_view name) {
  return !name.empty() && isWordStart(name[0]) && std::all_of(name.begin(), name.end(), isWordPart);
}

std::string quote(std::string_view string) {
  std::string text = "\"";
  while (!string.empty()) {
    const size_t length = utf8Length(string);
    const std::string_view character = string.substr(0, length == 0 ? 1 : length);
    text += escaped(character, length != 0);
    string.remove_prefix(character.size());
  }
  return text + '"';
}

std::string quoteName(std::string_view name) {
  return isBareName(name) && !isReserved(name) ? std::string(name) : quote(name);
}

std::string tilingText(const Tiling& tiling) {
  std::string text;
  forTilingFields(tiling, [&](const char* name, const auto& field) {
    if (std::memcmp(&field, &kZero, sizeof field) == 0) return;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, valueText(field));
  });
  return text;
}

std::string typeText(const Buffer& buffer) {
  std::string dims;
  for (const Dim& dim : buffer.shape) dims += (dims.empty() ? "" : ", ") + dimText(dim);
  return fmt::format("{} [{}]", word(buffer.type), dims);
}

std::string regionText(const Region& region) {
  const std::string unit = region.extent == Extent::kFixed ? "" : word(region.extent) + " * ";
  return fmt::format("{}{} bytes{}{}", unit, region.stride, region.symmetric ? " symmetric" : "",
                     region.saved ? " saved" : "");
}

std::string eventText(const EventArray& event) {
  const bool shown = event.factor != 0 || (event.rule <= ThresholdRule::MAX && hasFactor(event.rule));
  return fmt::format("[{}] counts {} to {}{}{}", word(event.space), word(event.unit), word(event.rule),
                     shown ? fmt::format("({})", event.factor) : "", event.remote ? " remote" : "");
}

}  // namespace sluice::text
