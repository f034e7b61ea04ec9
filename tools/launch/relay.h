// Relay: merges what the ranks of a job write to their standard error, line by line, into one text for a
// person.
//
// A value type: bytes in, text out. Each line gets the rank that wrote it, except errors that already begin
// with a rank. An error that several ranks report is shown once.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::tools {

class Relay {
 public:
  explicit Relay(int ranks) : open_(static_cast<size_t>(ranks)) {}

  // Returns the lines that are now complete.
  std::string add(int rank, std::string_view bytes);

  // Returns the rest of a rank that ended, as a line.
  std::string finish(int rank);

  // Whether anything was shown.
  bool hasShown() const { return shown_; }

 private:
  std::string show(int rank, std::string_view line);

  std::vector<std::string> open_;  // by rank: the beginning of an incomplete line
  std::set<std::string, std::less<>> errors_;
  bool shown_ = false;
};

}  // namespace sluice::tools
