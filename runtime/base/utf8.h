// UTF-8 in texts that come from files. Free functions; any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace sluice {

// The number of bytes of the UTF-8 character at the start of `text`, which must not be empty. 0 if there is
// none: a byte that starts no character, a truncated character, an overlong form, a surrogate, or a character
// above U+10FFFF.
constexpr size_t utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const unsigned char second = byte(1);
  const bool legal = !(first == 0xe0 && second < 0xa0) && !(first == 0xed && second > 0x9f) &&
                     !(first == 0xf0 && second < 0x90) && !(first == 0xf4 && second > 0x8f);
  return legal ? length : 0;
}

// Whether the character at the start of `text` controls a terminal: below U+0020, and U+007F to U+009F.
constexpr bool isControl(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x20 || first == 0x7f) return true;
  return first == 0xc2 && text.size() > 1 && static_cast<unsigned char>(text[1]) < 0xa0;
}

}  // namespace sluice
