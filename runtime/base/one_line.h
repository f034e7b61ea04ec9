// Quotes text from files in messages. Free functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/utf8.h"

namespace sluice {

// Returns the text with each byte written as "\x1b" that controls a terminal, ends a line, or is not UTF-8.
// Messages that quote names or words of untrusted files use it.
inline std::string oneLine(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string line;
  while (!text.empty()) {
    const size_t length = utf8Length(text);
    const std::string_view next = text.substr(0, length == 0 ? 1 : length);
    const bool plain = length != 0 && !isControl(next);
    if (plain) line += next;
    for (size_t i = 0; !plain && i < next.size(); ++i) {
      const auto byte = static_cast<unsigned char>(next[i]);
      line += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
    text.remove_prefix(next.size());
  }
  return line;
}

// The same for a message that may continue with a list: lines that begin with two blanks stay lines.
inline std::string messageLines(std::string_view text) {
  constexpr std::string_view kItem = "\n  ";
  std::string lines;
  for (size_t end = text.find(kItem); end != text.npos; end = text.find(kItem)) {
    lines += oneLine(text.substr(0, end)).append(kItem);
    text.remove_prefix(end + kItem.size());
  }
  return lines + oneLine(text);
}

// Whether oneLine() leaves the text unchanged.
inline bool isOneLine(std::string_view text) { return oneLine(text) == text; }

}  // namespace sluice
