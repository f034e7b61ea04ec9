#include "tests/fuzz/fuzz.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/base/one_line.h"

namespace sluice::fuzz {
namespace {

[[noreturn]] void fail(std::string_view what, std::string_view found) {
  std::fprintf(stderr, "broken promise: %.*s: '%.*s'\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(found.size()), found.data());
  std::abort();
}

}  // namespace

void require(bool condition, std::string_view what) {
  if (!condition) fail(what, "");
}

void requireMessage(std::string_view message, std::string_view place) {
  if (!message.starts_with(place)) fail("an error begins with its place", message);
  if (message.size() <= place.size()) fail("an error says what is wrong", message);
  if (messageLines(message) != message) fail("an error is one line without control bytes", oneLine(message));
}

void requireReport(std::string_view report, std::string_view place) {
  while (report.ends_with('\n')) report.remove_suffix(1);
  if (report.empty()) fail("an error says what is wrong", report);
  while (!report.empty()) {
    size_t end = report.find('\n');
    while (end != report.npos && report.substr(end + 1).starts_with("  ")) end = report.find('\n', end + 1);
    const std::string_view message = report.substr(0, end);
    requireMessage(message, place);
    if (message.find(" error: ") == message.npos && message.find(" note: ") == message.npos)
      fail("a message of a report is an error or a note", message);
    report.remove_prefix(std::min(report.size(), message.size() + 1));
  }
}

uint8_t Choices::byte() { return static_cast<uint8_t>(number(1)); }

uint32_t Choices::below(uint32_t count) { return static_cast<uint32_t>(number(count > 256 ? 4 : 1) % count); }

uint64_t Choices::number(int bytes) {
  uint64_t value = 0;
  for (; bytes > 0 && !rest_.empty(); --bytes) {
    value = value << 8 | rest_.front();
    rest_ = rest_.subspan(1);
  }
  return value;
}

ScratchFile::ScratchFile(std::string_view suffix) {
  folder_ = (std::filesystem::temp_directory_path() / "fuzz-XXXXXX").string();
  require(::mkdtemp(folder_.data()) != nullptr, "a folder for scratch files can be made");
  path_ = folder_ + "/input" + std::string(suffix);
}

ScratchFile::~ScratchFile() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void ScratchFile::write(std::string_view bytes) const {
  std::ofstream file(path_, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  require(file.good() && file.flush().good(), "a scratch file can be written");
}

std::string ScratchFile::read() const {
  std::ifstream file(path_, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace sluice::fuzz
