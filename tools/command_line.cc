#include "tools/command_line.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "runtime/api/sluice.h"
#include "runtime/base/encodings.h"
#include "runtime/base/one_line.h"
#include "runtime/program/program.h"

namespace sluice::tools {

namespace {

bool isOption(std::string_view argument) { return argument.size() > 1 && argument.front() == '-'; }

// A list of empty parts counts as empty.
bool isEmpty(std::string_view value) { return value.find_first_not_of(',') == value.npos; }

// Changes when neither an interface nor a format changes.
constexpr int kPatch = 0;

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

std::string findOldOption(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with("--")) continue;
    const size_t equals = argument.find('=');
    const std::string_view next = i + 1 < argc ? argv[i + 1] : "";
    const std::string_view value = equals == argument.npos ? next : argument.substr(equals + 1);
    const std::string_view option = argument.substr(0, equals);
    if (option == "--send-cores" || option == "--return-cores")
      return fmt::format("{}: this option is gone, expected {}=N in --cores", argument,
                         option == "--send-cores" ? "send" : "return");
    if (const std::string now = spelledNow(option.substr(2), value); !now.empty())
      return fmt::format("{}: this option is gone, expected --encode {} (docs/PRECISION.md)", argument, now);
  }
  return {};
}

std::string printable(std::string_view text) {
  std::string shown;
  for (;;) {
    const size_t end = text.find_first_of("\n\t");
    shown += oneLine(text.substr(0, end));
    if (end == text.npos) return shown;
    shown += text[end];
    text.remove_prefix(end + 1);
  }
}

void printError(std::string_view text) {
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
}

void openClosedStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      static_cast<void>(
          ::open("/dev/null", stream == STDIN_FILENO ? O_RDONLY : O_WRONLY));  // the lowest number
}

std::string versionText(std::string_view tool, std::string_view other) {
  // pkg-config and CMake read the version of the C interface in its header, too
  std::string text = fmt::format("{} {}.{}.{}\nprogram format {}.{}", tool, SLUICE_ABI_MAJOR,
                                 SLUICE_ABI_MINOR, kPatch, kFormatMajor, kFormatMinor);
  return other.empty() ? text : fmt::format("{}\n{}", text, other);
}

}  // namespace sluice::tools
