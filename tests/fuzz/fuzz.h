// What is fuzzed, for libFuzzer and for the replay tests alike, and the promises that every target checks.
//
// A target is one file that defines LLVMFuzzerTestOneInput: it takes any bytes and aborts where a promise
// does not hold. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace sluice::fuzz {

// Aborts with `what` unless the condition holds.
void require(bool condition, std::string_view what);

// What every error is: one line that begins with `place`, without control bytes; the lines of a list that may
// follow begin with two blanks.
void requireMessage(std::string_view message, std::string_view place);
// A report of the compiler: such messages, each of which says whether it is an error or a note.
void requireReport(std::string_view report, std::string_view place);

inline std::string_view textOf(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Takes choices from the front of an input; zeros once it is used up.
class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }
  uint8_t byte();
  // From 0 to `count` - 1.
  uint32_t below(uint32_t count);
  uint64_t number(int bytes);
  std::string_view rest() const { return textOf(rest_.data(), rest_.size()); }

 private:
  std::span<const uint8_t> rest_;
};

// A file in a folder of its own under $TMPDIR, removed with it, for readers that take a path.
class ScratchFile {
 public:
  // `suffix` is the end of its path, as ".json".
  explicit ScratchFile(std::string_view suffix);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return path_; }
  void write(std::string_view bytes) const;
  std::string read() const;

 private:
  std::string folder_;
  std::string path_;
};

}  // namespace sluice::fuzz
