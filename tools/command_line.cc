#include "tools/command_line.h"

#include <fmt/format.h>

#include "runtime/base/utf8.h"

namespace sluice::tools {
namespace {

bool isOption(std::string_view argument) { return argument.size() > 1 && argument.front() == '-'; }

// A list of empty parts is as empty as an empty text.
bool isEmpty(std::string_view value) { return value.find_first_not_of(',') == value.npos; }

}  // namespace

std::string findEmptyArgument(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::string_view before = argv[i - 1];
    const bool followsOption = i > 1 && isOption(before) && before.find('=') == before.npos;
    if (isEmpty(argument) && followsOption) return fmt::format("{}: its value is empty", before);
    if (isEmpty(argument)) return fmt::format("argument {} is empty", i);
    const size_t equals = argument.find('=');
    if (isOption(argument) && equals != argument.npos && isEmpty(argument.substr(equals + 1)))
      return fmt::format("{}: its value is empty", argument.substr(0, equals));
  }
  return {};
}

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t length = utf8Length(text);
    const std::string_view next = text.substr(0, length == 0 ? 1 : length);
    const bool plain = length != 0 && (!isControl(next) || next == "\n" || next == "\t");
    if (plain) shown += next;
    for (size_t i = 0; !plain && i < next.size(); ++i)
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(next[i]));
    text.remove_prefix(next.size());
  }
  return shown;
}

}  // namespace sluice::tools
