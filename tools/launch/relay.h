// Relay: what the ranks of a job write to their standard error, line by line, as one text for a person.
//
// A value type: bytes in, text out. Lines begin with the rank that wrote them, but for errors that begin with
// a rank themselves. An error that several ranks have in common is shown once.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::tools {

class Relay {
 public:
  explicit Relay(int ranks) : open_(static_cast<size_t>(ranks)) {}

  // The lines that are complete now.
  std::string add(int rank, std::string_view bytes);

  // What is left of a rank that ended, as a line.
  std::string finish(int rank);

  // Whether anything was shown.
  bool hasShown() const { return shown_; }

 private:
  std::string show(int rank, std::string_view line);

  std::vector<std::string> open_;  // by rank: the begin of a line
  std::set<std::string, std::less<>> errors_;
  bool shown_ = false;
};

}  // namespace sluice::tools
