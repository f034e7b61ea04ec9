// Starts the ranks of a job as processes of this machine and waits until all have ended; a Relay shows what
// they write to their standard error.
//
// Free functions, called while the process has one thread, and a value type. However this process ends, its
// ranks end with it.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"

namespace sluice::tools {

struct Launch {
  std::string program;                 // its path
  std::vector<std::string> arguments;  // argv[0] first
  int ranks = 1;
  double graceSeconds = 3;  // when a rank has failed, time for the others to report and end by themselves
  // How long all running ranks may be stopped (SIGSTOP, Ctrl-Z), when none of them can report the others.
  double stoppedSeconds = 30;
};

// Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and SLUICE_JOB, a name that no other job has.
// It has no input, writes to this process's standard output, and its standard error is shown with its rank.
// Returns the exit status: 0 if all ranks succeeded; the status of the first rank that failed, if it printed
// an error; 128 plus the signal if a signal asked this process to end. Errors: a rank was killed or failed
// without an error; all ranks are stopped; processes cannot be started. The message names the ranks. No rank
// is left running in any case. Time during which this process itself is stopped does not count.
Expected<int> launchRanks(const Launch& launch);

// Merges what the ranks of a job write to their standard error, line by line, into one text for a person:
// bytes in, text out. Each line gets the rank that wrote it, except errors that already begin with a rank. An
// error that several ranks report is shown once.
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
